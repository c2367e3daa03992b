/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What BCC's own headers and our programs need of the kernel's types; the rest of the kernel's headers is not needed.
 */
#pragma once
typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __s8 s8;
typedef __u8 u8;
typedef __s16 s16;
typedef __u16 u16;
typedef __s32 s32;
typedef __u32 u32;
typedef __s64 s64;
typedef __u64 u64;
typedef __u16 __le16, __be16, __sum16;
typedef __u32 __le32, __be32, __wsum;
typedef __u64 __le64, __be64;
#define __aligned_u64 __u64 __attribute__((aligned(8)))
typedef _Bool bool;
enum { false = 0, true = 1 };
typedef int pid_t;
typedef unsigned int uid_t, gid_t;
typedef unsigned long size_t, uintptr_t;
typedef long ssize_t;
typedef __u32 dev_t;
typedef unsigned short umode_t;
#define NULL ((void *)0)
#define __user
#define __bitwise
#define __always_inline inline __attribute__((__always_inline__))
#define noinline        __attribute__((__noinline__))
#define __packed        __attribute__((__packed__))
#define likely(x)       __builtin_expect(!!(x), 1)
#define unlikely(x)     __builtin_expect(!!(x), 0)
