/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once
#include <uapi/linux/ptrace.h>
typedef struct pt_regs bpf_user_pt_regs_t;
struct bpf_perf_event_data {
    bpf_user_pt_regs_t regs;
    __u64 sample_period, addr;
};
