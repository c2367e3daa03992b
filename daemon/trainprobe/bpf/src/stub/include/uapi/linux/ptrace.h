/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once
#include <linux/types.h>
#if defined(__x86_64__)
struct pt_regs {
    unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__aarch64__)
struct user_pt_regs {
    __u64 regs[31], sp, pc, pstate;
};
struct pt_regs {
    union {
        struct user_pt_regs user_regs;
        struct {
            __u64 regs[31], sp, pc, pstate;
        };
    };
    __u64 orig_x0;
    __s32 syscallno;
    __u32 unused;
};
#endif
