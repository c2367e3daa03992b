/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who is born, runs another program, is killed, dies? */
INLINE u32 id_of(void *task, u64 offset) {
    u32 id = 0;
    READ(id, task, offset);
    return id;
}
INLINE void forget_thread(u32 tid) { /* ids come back */
    drop_ledger(tid);
    held.delete(&tid);
    calls.delete(&tid);
    gpu_calls.delete(&tid);
}
int on_fork(struct bpf_raw_tracepoint_args *ctx) { /* parent, child */
    void *child = (void *)ctx->args[1];
    u32 parent = id_of((void *)ctx->args[0], OFFSET_TASK_TGID);
    u32 tid = id_of(child, OFFSET_TASK_PID), tgid = id_of(child, OFFSET_TASK_TGID);
    u8 *byte = level_of(tid);
    if (byte && *byte) { /* of a thread that died unseen */
        forget_thread(tid);
        *byte = 0;
    }
    struct process *p = processes.lookup(&parent);
    if (!p || p->tentative)
        return 0;
    if (tgid == parent) {
        if (byte)
            *byte = LEVEL_WRITER;
        return 0;
    }
    struct process fresh = {};
    fresh.parent = parent;
    if (processes.update(&tgid, &fresh))
        count_lost(LOST_LEDGER);
    open_ledger(tid, tgid, LEVEL_COARSE, RUN_RUNNABLE, pool_of(p, parent));
    struct process_message *m = begin_process(PROCESS_FORK, tgid);
    if (!m)
        return 0;
    m->parent = parent;
    bpf_get_current_comm(m->comm, sizeof(m->comm));
    ring.ringbuf_submit(m, BPF_RB_FORCE_WAKEUP);
    return 0;
}
int on_exec(struct bpf_raw_tracepoint_args *ctx) { /* task, old pid, binary */
    u32 tid = this_thread(), tgid = this_process(), old = ctx->args[1];
    struct process *p = processes.lookup(&tgid);
    if (!p || p->tentative) {
#ifdef AUTO
        char comm[16] = {};
        bpf_get_current_comm(comm, sizeof(comm));
        bool python =
            comm[0] == 'p' && comm[1] == 'y' && comm[2] == 't' && comm[3] == 'h' && comm[4] == 'o' && comm[5] == 'n';
        if (python && !p) { /* keep its time from the start, in case it turns out to be a training */
            struct process fresh = {};
            fresh.tentative = 1;
            processes.update(&tgid, &fresh);
            open_ledger(tid, tgid, LEVEL_COARSE | QUIET, RUN_ON, 0);
            begin_start(tgid, bpf_ktime_get_ns());
        }
        if (python)
            note_python();
        emit_candidate(tgid, WHY_EXEC, quietly(sizeof(struct candidate_message)));
#endif
        return 0;
    }
    if (old != tid) { /* another thread than the first one called exec(2): it took over the first one's id */
        u8 *byte = level_of(old);
        struct ledger *its = find_ledger(old);
        if (byte)
            *byte = 0;
        if (its)
            tell_held(its);
        forget_thread(old);
    }
    p->drivers = p->gpu_sites = 0;
    gpu_calls.delete(&tid);
    begin_start(tgid, bpf_ktime_get_ns());
    struct ledger *l = ledger_of(tid, LEVEL_COARSE);
    if (!l) { /* the first thread is dead, and with it its ledger; its id goes on */
        struct process *parent = p->parent ? processes.lookup(&p->parent) : 0;
        open_ledger(tid, tgid, p->parent ? LEVEL_COARSE : LEVEL_FULL, RUN_ON, parent ? parent->pool : 0);
    }
    if (l) { /* the marks of the old program are gone */
        l->nested = l->grads_off = l->closing = l->saw_ends = l->collecting = 0;
        l->depth = 0;
        l->graph_task = 0;
        l->flying.known.inode = 0; /* and its descriptors may be closed */
        settle(l, bpf_ktime_get_ns());
    }
    struct process_message *m = begin_process(PROCESS_EXEC, tgid);
    if (!m)
        return 0;
    bpf_get_current_comm(m->comm, sizeof(m->comm));
    ring.ringbuf_submit(m, BPF_RB_FORCE_WAKEUP);
    return 0;
}
INLINE void end_process(void *task, void *signal, u32 tgid, struct process *p) {
    void *leader = 0, *parent = 0;
    u32 flags = 0, slot = p->pool;
    s32 code = 0, writing = p->writing;
    bool told = !p->tentative;
    if (processes.delete(&tgid))
        return; /* another of its last threads was first */
    READ(flags, signal, OFFSET_SIGNAL_FLAGS);
    READ(leader, task, OFFSET_TASK_LEADER);
    READ(parent, task, OFFSET_TASK_PARENT);
    READ(code, leader, OFFSET_TASK_EXIT_CODE);
    if (flags & SIGNAL_GROUP_EXIT)
        READ(code, signal, OFFSET_SIGNAL_EXIT_CODE);
    if (slot)
        pool_owner.delete(&slot);
    if (writing > 0)
        __sync_fetch_and_add(writers_like(tgid), -writing);
    struct process_message *m = told ? begin_process(PROCESS_EXIT, tgid) : 0;
    if (!m)
        return;
    m->code = code;
    m->parent = id_of(parent, OFFSET_TASK_TGID);
    bpf_get_current_comm(m->comm, sizeof(m->comm));
    ring.ringbuf_submit(m, BPF_RB_FORCE_WAKEUP);
}
int on_exit(struct bpf_raw_tracepoint_args *ctx) { /* task; once for each thread */
    void *task = (void *)ctx->args[0], *signal = 0;
    u32 tid = this_thread(), tgid = this_process();
    s32 live = 1;
    u8 *byte = level_of(tid);
    if (byte && *byte) {
        struct ledger *l = find_ledger(tid);
        if (l) {
            charge(l, bpf_ktime_get_ns(), l->leaf);
            tell_held(l);
            if (*byte == LEVEL_FULL)
                emit_row(l, ROW_EXIT, 0, BPF_RB_FORCE_WAKEUP);
            struct process *p = *byte == LEVEL_FULL && tid != tgid ? processes.lookup(&tgid) : 0;
            if (p)
                __sync_fetch_and_add(&p->drivers, -1);
        }
        forget_thread(tid);
        *byte = 0;
    }
    READ(signal, task, OFFSET_TASK_SIGNAL);
    READ(live, signal, OFFSET_SIGNAL_LIVE);
    if (live > 0 || (tid != tgid && ledger_of(tgid, LEVEL_FULL)))
        return 0; /* the first thread is on its way: it comes here too, with its last row */
#ifdef AUTO
    told_marks.delete(&tgid);
#endif
    starts.delete(&tgid); /* also of one that is watched no longer */
    struct process *p = processes.lookup(&tgid);
    if (p)
        end_process(task, signal, tgid, p);
    return 0;
}
/* Those that end a process, and those that stop it and let it go on (18 to 20). */
#define TOLD_SIGNALS                                                                                                   \
    (1u << 1 | 1u << 2 | 1u << 3 | 1u << 4 | 1u << 6 | 1u << 7 | 1u << 8 | 1u << 9 | 1u << 11 | 1u << 15 | 1u << 18 |  \
     1u << 19 | 1u << 20 | 1u << 24)
int on_signal(struct bpf_raw_tracepoint_args *ctx) { /* number, info, task, group, result */
    u32 number = ctx->args[0];
    u64 info = ctx->args[1];
    if (number > 31 || !(TOLD_SIGNALS >> number & 1))
        return 0;
    u32 tgid = id_of((void *)ctx->args[2], OFFSET_TASK_TGID);
    struct process *p = processes.lookup(&tgid);
    if (!p || p->tentative)
        return 0;
    struct process_message *m = begin_process(PROCESS_SIGNAL, tgid);
    if (!m)
        return 0;
    m->signal = number;
    m->code = info == SPECIAL_PRIVATE ? 0x80 : 0; /* SI_KERNEL, SI_USER */
    if (info > SPECIAL_PRIVATE)
        READ(m->code, (void *)info, 8);
    m->sender = this_process();
    bpf_get_current_comm(m->sender_comm, sizeof(m->sender_comm));
    read_kernel_string(m->comm, sizeof(m->comm), (char *)ctx->args[2] + OFFSET_TASK_COMM);
    ring.ringbuf_submit(m, BPF_RB_FORCE_WAKEUP);
    return 0;
}
int on_oom(void *ctx) { /* oom:mark_victim */
    u32 tid = 0;
    READ(tid, ctx, AT_OOM_PID);
    u8 *byte = level_of(tid);
    if (!byte || !*byte || *byte & QUIET)
        return 0;
    struct ledger *l = find_ledger(tid);
    struct process_message *m = begin_process(PROCESS_OOM, l ? l->tgid : tid);
    if (!m)
        return 0;
    if (AT_OOM_ANON) /* since Linux 6.9 (72ba14deb40a) */
        READ(m->anonymous, ctx, AT_OOM_ANON);
    if (AT_OOM_SHARED)
        READ(m->shared, ctx, AT_OOM_SHARED);
    ring.ringbuf_submit(m, BPF_RB_FORCE_WAKEUP);
    return 0;
}
