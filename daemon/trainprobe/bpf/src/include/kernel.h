/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Everything that differs between kernels. OFFSET_*, TYPE_* and FUNCTION_* come from BTF (0: this kernel has no such
 * thing), AT_* from the tracepoints' format files, TEXT_* and TICK from /proc/kallsyms. Nothing here tests a version
 * number. */
#pragma once
#include <uapi/linux/ptrace.h>
#include <uapi/linux/bpf_perf_event.h>
#include "registers.h"

/* Follows a pointer that the verifier knows the type of, with a plain load; a fault gives 0. A helper's call takes 40
 * ns where every return is guarded against speculation (AMD's SRSO). */
#define FOLLOW(type, base, offset) (*(type volatile *)((char *)(base) + (offset)))

/* By number: BCC 0.18 knows not all of them, for each call of bpf_probe_read_user that it sees it reads the whole of
 * /proc/kallsyms, and where addresses are hidden there, it makes bpf_probe_read of the kernel's. The newest is
 * bpf_task_pt_regs (Linux 5.15). */
static long (*read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*read_user_string)(void *to, u32 size, const void *from) = (void *)114;
static void *(*current_task)(void) = (void *)158;   /* bpf_get_current_task_btf */
static void *(*registers_of)(void *) = (void *)175; /* bpf_task_pt_regs */
static long (*read_kernel_string)(void *to, u32 size, const void *from) = (void *)115;

#define READ(to, base, offset) read_kernel(&(to), sizeof(to), (char *)(base) + (offset))

/* What is reached over a table of pointers has no type, unless the kernel takes our word for it: bpf_rdonly_cast (Linux
 * 6.2), a function that the verifier replaces by nothing. translate.py makes its call of one with a negative number.
 * PICK reads a member of such a structure. */
#if FUNCTION_CAST
static void *(*cast)(const void *at, u32 type) = (void *)(-(s64)FUNCTION_CAST);
#define PICK(to, base, offset) ((to) = FOLLOW(typeof(to), base, offset), 0)
#else
#define PICK(to, base, offset) READ(to, base, offset)
#endif

/* prev_state of sched_switch: __TASK_STOPPED | __TASK_TRACED | TASK_FROZEN (f5d39b020809, Linux 6.1: frozen tasks got a
 * state of their own; before, they show as uninterruptible in __refrigerator). */
#define STATE_STOPPED 0x800c

/* task_struct.throttled: task based CFS throttling (e1fad12dcb66, Linux 6.18). Elsewhere quota shows as RUNQUEUE. */
#ifndef OFFSET_TASK_THROTTLED
#define OFFSET_TASK_THROTTLED 0
#endif

/* A raw tracepoint whose program is loaded for the types of its arguments (BPF_TRACE_RAW_TP): what they point to is
 * read by plain loads. */
struct typed_event {
    u64 args[4];
};

/* The state that sched_switch's prev had, a fourth argument since Linux 5.18 (fa2c3254d7cf); before, what the task
 * says. */
static __always_inline u64 state_before_switch(struct typed_event *e) {
    if (SWITCH_TELLS_STATE)
        return e->args[3];
    return FOLLOW(u32, e->args[1], OFFSET_TASK_STATE);
}

#define SIGNAL_GROUP_EXIT 4
#define SPECIAL_NO_INFO   0ull /* SEND_SIG_NOINFO: sent by a process through kill(2) of old */
#define SPECIAL_PRIVATE   1ull /* SEND_SIG_PRIV: sent by the kernel */
