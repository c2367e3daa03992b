/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Everything that differs between kernels. OFFSET_* come from BTF (0: this kernel has no such member), AT_* from the
 * tracepoints' format files, TEXT_* from /proc/kallsyms. Nothing here tests a version number. */
#pragma once
#include <uapi/linux/ptrace.h>
#include <uapi/linux/bpf_perf_event.h>
#include "registers.h"

#define READ(to, base, offset) bpf_probe_read_kernel(&(to), sizeof(to), (char *)(base) + (offset))

/* BCC 0.18 knows neither helper by name; both came with Linux 5.11 (3ca1032ab7ab) and 5.15 (dd6e10fbd9fb). */
static void *(*current_task)(void) = (void *)158;   /* bpf_get_current_task_btf */
static void *(*registers_of)(void *) = (void *)175; /* bpf_task_pt_regs */

/* prev_state of sched_switch: __TASK_STOPPED | __TASK_TRACED | TASK_FROZEN (f5d39b020809, Linux 6.1: frozen tasks got a
 * state of their own; before, they show as uninterruptible in __refrigerator). */
#define STATE_STOPPED 0x800c

/* task_struct.throttled: task based CFS throttling (e1fad12dcb66, Linux 6.18). Elsewhere quota shows as RUNQUEUE. */
#ifndef OFFSET_TASK_THROTTLED
#define OFFSET_TASK_THROTTLED 0
#endif

#define SIGNAL_GROUP_EXIT 4
#define SPECIAL_NO_INFO   0ull /* SEND_SIG_NOINFO: sent by a process through kill(2) of old */
#define SPECIAL_PRIVATE   1ull /* SEND_SIG_PRIV: sent by the kernel */
