/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Page faults and reclaim. A fault that blocks is seen by sched_switch; here is what happens on the CPU. */
int on_page_fault(struct bpf_raw_tracepoint_args *ctx) { /* dear: attached only while major faults rise */
    struct ledger *l = ledger_of(this_thread(), LEVEL_COARSE);
    if (!l)
        return 0;
    l->fault_at = bpf_ktime_get_ns();
    l->fault_file = 0;
    return 0;
}
int on_file_fault(void *ctx) { /* filemap:mm_filemap_fault: the file of a fault */
    struct ledger *l = ledger_of(this_thread(), LEVEL_COARSE);
    if (!l || l->call >= 0)
        return 0;
    l->fault_file = 1;
    READ(l->dev, ctx, AT_FILE_FAULT_DEV);
    READ(l->ino, ctx, AT_FILE_FAULT_INO);
    return 0;
}
int on_major_fault(struct bpf_perf_event_data *ctx) { /* software event page-faults-maj: the end of a major fault */
    struct ledger *l = ledger_of(this_thread(), LEVEL_COARSE);
    if (!l)
        return 0;
    if (l->call < 0 && l->fault_at) {
        if (l->fault_at > l->at)
            charge(l, l->fault_at, l->leaf);
        charge(l, bpf_ktime_get_ns(), l->fault_file ? LEAF_FAULT : LEAF_SWAP);
    }
    l->major_faults++;
    l->swap_faults += !l->fault_file;
    l->fault_at = 0;
    l->fault_file = 0;
    return 0;
}
int on_reclaim_begin(void *ctx) {
    struct ledger *l = ledger_of(this_thread(), LEVEL_COARSE);
    u64 argument;
    if (!l)
        return 0;
    if (l->run != RUN_ON)
        must_run(l, current_task(), bpf_ktime_get_ns());
    /* Inside a fault its beginning belongs to it. */
    if (l->fault_at && call_in_flight(current_task(), &argument) < 0) {
        if (l->fault_at > l->at)
            charge(l, l->fault_at, l->leaf);
        l->leaf = l->fault_file ? LEAF_FAULT : LEAF_SWAP;
    }
    l->reclaim = 1;
    move(l, bpf_ktime_get_ns(), LEAF_RECLAIM);
    return 0;
}
int on_reclaim_end(void *ctx) {
    struct ledger *l = ledger_of(this_thread(), LEVEL_COARSE);
    if (!l)
        return 0;
    if (l->run != RUN_ON)
        must_run(l, current_task(), bpf_ktime_get_ns());
    l->reclaim = 0;
    move(l, bpf_ktime_get_ns(), on_cpu(l));
    return 0;
}
