/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* When does a thread run, wait for a CPU, or block, and in what?
 *
 * Preemption: tracepoint programs run with preemption disabled, uprobe programs do not (bpf_prog_run_array_uprobe only
 * disables migration). On a preemptible kernel sched_switch can therefore come in the middle of a uprobe program that
 * is changing this very ledger. Such a program sets busy first and clears it last; sched_switch then leaves the ledger
 * alone in both directions, and the interrupted program's next charge takes the whole time: the sum stays exact, a
 * preemption of some microseconds is booked as CPU. The same task runs on one CPU at a time, so a compiler barrier is
 * enough. */
/* Woken and on a CPU so soon, a thread had no rival: the wake-up's latency belongs to the wait that it ends. A rival
 * keeps the CPU for a slice (sysctl_sched_base_slice, 0.75 ms and more with one CPU, 2.8 ms with eight); less than that
 * is the idle CPU's wake-up, or the end of somebody's system call on a kernel that does not preempt those. */
#define WAKE_UP_NS 700000

#define LEAF_LATER LEAVES /* of a call in flight: found when it blocks, for most do not */

struct call_description { /* bpf/attach/syscalls.py */
    u8 kind, fd_argument;
    u8 leaf; /* of a thread that blocks in it; LEAF_LATER: what its descriptor refers to decides */
};
struct call_kinds {
    struct call_description of[CALL_NUMBERS];
};
BPF_ARRAY(call_kinds, struct call_kinds, 1);               /* by system call number */
INLINE struct call_description *kind_of_call(s64 number) { /* 0: none is so high, or none at all */
    u64 at = number;
    asm volatile("" : "+r"(at));
    return at < CALL_NUMBERS
               ? (struct call_description *)(VALUE_OF(VALUE_CALL_KINDS) + at * sizeof(struct call_description))
               : 0;
}

INLINE u8 leaf_of_wait(struct ledger *l, struct call_description *d, u64 argument) {
    s32 fd = argument;
    if (!d || d->kind == CALL_NONE)
        return LEAF_OTHER;
    if (d->kind == CALL_SELECT && !argument)
        return LEAF_SLEEP; /* select(0, ...) is how old Pythons sleep */
    if (d->leaf != LEAF_LATER)
        return d->leaf;
    u8 kind = d->kind;
    if (kind == CALL_POLL && read_user(&fd, 4, (void *)argument)) /* the first descriptor of poll(2) */
        return LEAF_POLL;
    struct target t = {};
    l->blocked_fd = fd;
    void *file = file_behind(fd), *inode = inode_of(file);
    /* Most wait again and again for the same. Addresses that come back belong to another file of its kind. */
    if (file && l->waited_file == (u64)file && l->waited_inode == (u64)inode && l->waited_kind == kind)
        return l->waited_leaf;
    if (!describe(file, inode, &t))
        return kind == CALL_POLL ? LEAF_POLL : kind == CALL_SOCKET ? LEAF_SOCKET : LEAF_OTHER;
    u8 leaf = leaf_of_target(&t, kind);
    if (leaf == LEAF_SOCKET && kind != CALL_WRITE && is_pair(fd) && !is_loaders_worker())
        leaf = LEAF_PIPE_READ;
    l->dev = t.dev;
    l->ino = is_regular(&t) ? t.ino : 0;
    if (kind == CALL_POLL && leaf != LEAF_PIPE_READ && leaf != LEAF_SOCKET && leaf != LEAF_GPU)
        leaf = LEAF_POLL;
    if (kind == CALL_DEVICE && leaf != LEAF_GPU && leaf != LEAF_SOCKET)
        leaf = LEAF_DEVICE;
    l->waited_file = is_regular(&t) ? 0 : (u64)file;
    l->waited_inode = (u64)inode;
    l->waited_kind = kind;
    l->waited_leaf = leaf;
    return leaf;
}
/* How long has who runs next waited for its CPU since it left one? The scheduler counts for itself: what its waits took
 * that a move to another queue ended, and when it came into this one, by this one's clock. So nobody need be asked at
 * each wake-up, of which a host has as many as switches. */
INLINE u64 queued_for(void *task, struct ledger *l) {
    u64 queued = 0;
#if OFFSET_TASK_CFS_RQ && OFFSET_CFS_RQ_RQ && OFFSET_RQ_CLOCK
    void *group = FOLLOW(void *, task, OFFSET_TASK_CFS_RQ), *rq = FOLLOW(void *, group, OFFSET_CFS_RQ_RQ);
    u64 came = FOLLOW(u64, task, OFFSET_TASK_QUEUED);
    if (came)
        queued = FOLLOW(u64, rq, OFFSET_RQ_CLOCK) - came;
    if (l->delay) /* not known: it blocked before it was watched */
        queued += FOLLOW(u64, task, OFFSET_TASK_DELAY) - l->delay;
#endif
    return (s64)queued < 0 ? 0 : queued;
}
INLINE u8 queue(void *task) { /* runnable: for want of a CPU, or of quota? */
    return OFFSET_TASK_THROTTLED && FOLLOW(u8, task, OFFSET_TASK_THROTTLED) ? LEAF_THROTTLED : LEAF_RUNQUEUE;
}
/* Which fault waits is told by the stack: no tracepoint ends a fault, and none begins a swap-in. */
INLINE u8 leaf_of_fault(void *ctx, struct ledger *l) {
    u8 leaf = l->fault_file ? LEAF_FAULT : LEAF_SWAP;
    u64 ip[16] = {};
    if (TEXT_SWAP && bpf_get_stack(ctx, ip, sizeof(ip), 0) > 0)
        leaf = LEAF_OTHER;
#pragma unroll
    for (int i = 4; i < 16; i++) {
        if (ip[i] - TEXT_SWAP < TEXT_SWAP_SIZE || ip[i] - TEXT_SHMEM < TEXT_SHMEM_SIZE)
            leaf = LEAF_SWAP;
        if (ip[i] - TEXT_FILE < TEXT_FILE_SIZE)
            leaf = LEAF_FAULT;
    }
    return leaf;
}
/* The call in flight of a task, or -1: user code or a fault. */
INLINE s64 call_in_flight(void *task, u64 *argument) {
    void *registers = registers_of(task);
    *argument = FOLLOW(u64, registers, CALL_ARGUMENT_OFFSET);
    return FOLLOW(CALL_NUMBER_TYPE, registers, CALL_NUMBER_OFFSET);
}
INLINE u8 why_blocked(struct typed_event *e, struct ledger *l, u64 state, u64 now) {
    u64 argument = 0;
    s64 number = call_in_flight((void *)e->args[1], &argument);
    struct call_description *d = kind_of_call(number);
    if (state & STATE_STOPPED)
        return LEAF_STOPPED;
    if (d && d->kind == CALL_RESTART)
        return l->wait_leaf; /* restart_syscall(2): a signal or the freezer came between */
    l->blocked_call = number;
    l->blocked_fd = -1;
    if (number >= 0)
        l->fault_at = 0; /* no program ends a minor fault */
    if (l->reclaim)
        return LEAF_RECLAIM;
    if (l->call != number)
        l->call = -1; /* none, or its exit was never seen */
    else if (number >= 0 && l->call_leaf != LEAF_LATER) {
        l->blocked_fd = argument;
        return l->wait_leaf = l->call_leaf;
    }
    if (number >= 0) {
        l->ino = 0;
        return l->wait_leaf = l->gpu ? LEAF_GPU : leaf_of_wait(l, d, argument);
    }
    u8 leaf = leaf_of_fault(e, l);
    if (l->fault_at > l->at)
        charge(l, l->fault_at, LEAF_CPU);
    if (l->fault_at)
        charge(l, now, leaf);
    if (!l->fault_file)
        l->ino = 0;
    return leaf;
}
INLINE void end_backward_elsewhere(struct ledger *l);

int on_switch(struct typed_event *e) { /* preempt, prev, next, prev_state */
    u32 tid = FOLLOW(u32, e->args[1], OFFSET_TASK_PID);
    struct ledger *l = ledger_of(tid, LEVEL_COARSE);
    u64 now = 0;
    if (l && !l->busy) {
        now = bpf_ktime_get_ns();
        if (l->run != RUN_ON)
            must_run(l, (void *)e->args[1], now);
        u64 state = state_before_switch(e);
        if (e->args[0] || !state) {
            l->run = RUN_RUNNABLE;
            l->why = LEAF_CPU;
            u8 leaf = queue((void *)e->args[1]);
            move(l, now, l->gpu && leaf == LEAF_RUNQUEUE ? LEAF_GPU : leaf); /* it only spins: the GPU works on */
        } else {
            u8 leaf = why_blocked(e, l, state, now);
            move(l, now, leaf);
            l->run = RUN_BLOCKED;
            l->since = now;
            l->why = leaf;
            l->delay = OFFSET_TASK_DELAY ? FOLLOW(u64, e->args[1], OFFSET_TASK_DELAY) : 0;
        }
    }
    tid = FOLLOW(u32, e->args[2], OFFSET_TASK_PID);
    l = ledger_of(tid, LEVEL_COARSE);
    if (!l || l->busy)
        return 0;
    if (!now)
        now = bpf_ktime_get_ns();
    u64 queued = l->run == RUN_BLOCKED ? queued_for((void *)e->args[2], l) : 0;
    if (queued >= WAKE_UP_NS)
        move(l, now - queued, LEAF_RUNQUEUE);
    move(l, now, on_cpu(l));
    if (l->closing)
        end_backward_elsewhere(l);
    if (l->fault_at && (l->why == LEAF_SWAP || l->why == LEAF_FAULT))
        l->fault_at = now; /* it goes on, on the CPU */
    l->run = RUN_ON;
    l->since = now;
    return 0;
}
