/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The ledger itself: who is traced how closely, charging time, telling user space.
 * The files *.bpf.c are one translation unit, in the order of translate.SOURCES; BCC rewrites map accesses only there,
 * so headers hold no code that touches a map. */
#include "kernel.h"
#include "layout.h"

#define INLINE static __always_inline

/* Of a map with one entry, a program can hold the value's address: no look-up, and no key on the stack. VALUE_*: its
 * place in image.VALUES, which the loader replaces by the map. */
#define VALUE_OF(number) ((u8 *)bpf_pseudo_fd(2 /* BPF_PSEUDO_MAP_VALUE */, number))

/* By thread id: its level | QUIET, the first filter of every hot event, which user space maps and writes single bytes
 * of; and whether the beginning of the call that it is in was noted, which only the thread itself writes. */
struct by_thread {
    u8 of[TID_ROOM];
};
BPF_F_TABLE("array", u32, struct by_thread, levels, 1, 1 << 10 /* BPF_F_MMAPABLE */);
BPF_ARRAY(calling, struct by_thread, 1);
BPF_HASH(processes, u32, struct process, 4096);
/* By place. The last bits of a thread's id name its own, where nothing need be hashed to find it (35 ns, in half of all
 * runs). Who finds it taken by another thread has one of the spare places behind those. */
BPF_F_TABLE("array", u32, struct ledger, ledgers, LEDGERS, 1 << 10 /* BPF_F_MMAPABLE */);
BPF_HASH(ledger_owners, u32, u32, LEDGERS);                /* place -> thread: inserting is the claim */
BPF_HASH(ledger_spare, u32, u32, LEDGERS - LEDGERS_BY_ID); /* thread -> place */
BPF_ARRAY(ledger_next, u32, 1);
BPF_PERCPU_ARRAY(blank_ledger, struct ledger, 1);
/* What all worker processes of a process charged together. pool_target sends a forkserver's children to the driver. */
BPF_ARRAY(pools, struct pool, POOLS);
BPF_ARRAY(pool_target, u32, POOLS);
BPF_HASH(pool_owner, u32, u32, POOLS); /* slot -> process: inserting is the claim */
BPF_ARRAY(pool_next, u32, 1);
BPF_ARRAY(lost, u64, 16);
BPF_RINGBUF_OUTPUT(ring, 256); /* pages: 1 MiB */
BPF_ARRAY(quiet_bytes, u64, 1);

INLINE void count_lost(u32 probe) {
    u64 *n = lost.lookup(&probe);
    if (n)
        __sync_fetch_and_add(n, 1);
}

/* The barrier: the verifier knows no bounds of what the compiler compares elsewhere. */
#define BYTE_OF(number, tid)                                                                                           \
    ({                                                                                                                 \
        u64 at_ = (tid);                                                                                               \
        asm volatile("" : "+r"(at_));                                                                                  \
        at_ < TID_ROOM ? VALUE_OF(number) + at_ : (u8 *)0;                                                             \
    })
INLINE u8 *level_of(u32 tid) {
    return BYTE_OF(VALUE_LEVELS, tid);
}
INLINE u8 *calling_of(u32 tid) {
    return BYTE_OF(VALUE_CALLING, tid);
}
INLINE void set_calling(u32 tid) {
    u8 *noted = calling_of(tid);
    if (noted)
        *noted = 1;
}
INLINE bool was_calling(u32 tid) { /* no longer */
    u8 *noted = calling_of(tid);
    if (!noted || !*noted)
        return false;
    *noted = 0;
    return true;
}
INLINE u32 this_thread(void) {
    return (u32)bpf_get_current_pid_tgid();
}
INLINE u32 this_process(void) {
    return bpf_get_current_pid_tgid() >> 32;
}

INLINE struct ledger *find_ledger_at(u32 tid, u32 *place) {
    *place = tid % LEDGERS_BY_ID;
    struct ledger *l = ledgers.lookup(place);
    if (!l || l->tid == tid)
        return l;
    u32 *spare = ledger_spare.lookup(&tid);
    if (!spare)
        return 0;
    *place = *spare;
    return ledgers.lookup(place);
}
INLINE struct ledger *find_ledger(u32 tid) {
    u32 place = 0;
    return find_ledger_at(tid, &place);
}
INLINE struct ledger *ledger_of(u32 tid, u8 least) {
    u8 *level = level_of(tid);
    return level && (*level & ~QUIET) >= least ? find_ledger(tid) : 0;
}

/* 0 where it is no less. In one piece: the verifier of 6.1 loses bounds of what the compiler compares elsewhere. */
#define BOUND(index, count) asm volatile("if %0 < %1 goto +1\n\t%0 = 0" : "+r"(index) : "i"(count))

/* ---- charging ---- */
/* The mask right before the use: the verifier of 6.1 loses the bounds of what the compiler would make of it. */
INLINE u64 *cell_of(struct ledger *l, u32 leaf) {
    u32 cell = l->region * LEAVES + leaf;
    asm volatile("" : "+r"(cell));
    return &l->acc[cell & (CELLS - 1)];
}
INLINE struct pool *pool_in_use(struct ledger *l) {
    u32 pool = l->pool;
    u32 *target = pool_target.lookup(&pool);
    if (target && *target)
        pool = *target;
    return pools.lookup(&pool);
}
INLINE void add_to_pool(struct ledger *l, u64 spent, u32 leaf) {
    struct pool *p = pool_in_use(l);
    u64 at = leaf;
    BOUND(at, LEAVES);
    if (p)
        __sync_fetch_and_add(&p->ns[at], spent);
}
INLINE void charge(struct ledger *l, u64 now, u32 leaf) {
    u64 spent = now - l->at;
    if ((s64)spent <= 0)
        return;
    *cell_of(l, leaf) += spent;
    if (leaf >= LEAF_FILE_WRITE && leaf <= LEAF_FILE_META)
        l->call_ns += spent;
    if (l->pool)
        add_to_pool(l, spent, leaf);
    l->at = now;
}
INLINE void move(struct ledger *l, u64 now, u8 leaf) {
    charge(l, now, l->leaf);
    l->leaf = leaf;
}
INLINE u8 on_cpu(struct ledger *l) {
    return l->reclaim      ? LEAF_RECLAIM
           : l->call >= 0  ? l->cpu_leaf
           : l->gpu        ? LEAF_GPU
           : l->collecting ? LEAF_COLLECTOR
                           : LEAF_CPU;
}
INLINE u64 *cpu_cell(struct ledger *l) {
    return cell_of(l, LEAF_CPU);
}
/* It is out of a call of CUDA whose return was not seen, as that of the first call from a place may be: what was booked
 * on the GPU since then was perhaps something else. */
INLINE void out_of_gpu(struct ledger *l) {
    if (!l->gpu)
        return;
    charge(l, bpf_ktime_get_ns(), LEAF_GPU);
    u64 *cell = cell_of(l, LEAF_GPU);
    u64 more = *cell - l->gpu_mark;
    *cell -= more;
    *cpu_cell(l) += more;
    l->gpu = 0;
    l->leaf = on_cpu(l);
}

/* Whatever a thread does proves that it runs. Where nobody told that it began to (there are kernels whose sched_switch
 * leaves out some switches), the scheduler knows for how long it has, to a tick of the clock. Callers ask for l->run
 * first: helpers that only this needs are then not called. */
INLINE void must_run(struct ledger *l, void *task, u64 now) {
    charge(l, now - (FOLLOW(u64, task, OFFSET_TASK_RAN) - FOLLOW(u64, task, OFFSET_TASK_RAN_BEFORE)), l->leaf);
    l->leaf = on_cpu(l);
    l->run = RUN_ON;
    l->since = l->at;
}

/* Files of the present step: one slot each, what does not fit goes to the last one, which then names none. */
INLINE void add_to_step(struct ledger *l, u32 dev, u64 ino, u64 io_ns, u64 gap_ns, u64 bytes) {
    u32 free = STEP_FILES - 1;
    bool mixed = true;
#pragma unroll
    for (u32 i = 0; i < STEP_FILES; i++) {
        struct step_file *f = &l->files[i];
        bool used = f->io_ns || f->gap_ns || f->bytes;
        if (!used || (f->ino == ino && f->dev == dev)) {
            free = i;
            mixed = false;
            break;
        }
    }
    struct step_file *f = &l->files[free & (STEP_FILES - 1)];
    f->dev = mixed ? 0 : dev;
    f->ino = mixed ? 0 : ino;
    f->io_ns += io_ns;
    f->gap_ns += gap_ns;
    f->bytes += bytes;
    f->calls++;
}

/* ---- opening and closing ---- */
INLINE bool claim_ledger(u32 tid, u32 *place) {
    u32 zero = 0, own = tid % LEDGERS_BY_ID;
    u32 *spare = ledger_spare.lookup(&tid), *next = ledger_next.lookup(&zero);
    if (spare) {
        *place = *spare;
        return true;
    }
    *place = own;
    if (!ledger_owners.insert(&own, &tid))
        return true;
    u32 *owner = ledger_owners.lookup(&own);
    if (owner && *owner == tid)
        return true;
    if (!next)
        return false;
#pragma nounroll
    for (int i = 0; i < 16; i++) {
        u32 candidate = LEDGERS_BY_ID + *next % (LEDGERS - LEDGERS_BY_ID);
        *next += 1;
        if (!ledger_owners.insert(&candidate, &tid)) {
            ledger_spare.update(&tid, &candidate);
            *place = candidate;
            return true;
        }
    }
    return false;
}
INLINE void drop_ledger(u32 tid) {
    u32 place = 0;
    struct ledger *l = find_ledger_at(tid, &place);
    if (!l)
        return;
    l->tid = 0;
    if (place >= LEDGERS_BY_ID)
        ledger_spare.delete(&tid);
    ledger_owners.delete(&place);
}
INLINE struct ledger *open_ledger(u32 tid, u32 tgid, u8 level, u8 run, u32 pool) {
    u32 zero = 0;
    struct ledger *blank = blank_ledger.lookup(&zero);
    u8 *byte = level_of(tid);
    if (!blank || !byte)
        return 0;
    blank->at = blank->since = blank->opened = bpf_ktime_get_ns();
    blank->tid = tid;
    blank->tgid = tgid;
    blank->call = blank->blocked_call = -1;
    blank->pool = pool;
    blank->run = run;
    blank->leaf = run == RUN_ON ? LEAF_CPU : LEAF_RUNQUEUE;
    u32 place = 0;
    if (!claim_ledger(tid, &place)) {
        count_lost(LOST_LEDGER);
        return 0;
    }
    ledgers.update(&place, blank);
    *byte = level;
    return ledgers.lookup(&place);
}
/* The pool for the child processes of this one, given out when it first needs one. */
INLINE u32 pool_of(struct process *p, u32 tgid) {
    if (p->pool)
        return p->pool;
    u32 zero = 0, slot = 0, target = 0;
    u32 *next = pool_next.lookup(&zero);
    if (!next)
        return 0;
    struct process *parent = p->parent ? processes.lookup(&p->parent) : 0;
    if (parent && parent->driver && find_ledger(tgid)) /* without one, it is a program of another kind */
        target = parent->pool; /* a forkserver: what it forks works for the driver that started it */
#pragma nounroll
    for (int i = 0; i < 16 && !slot; i++) {
        u32 candidate = (*next + i) % (POOLS - 1) + 1;
        if (!pool_owner.insert(&candidate, &tgid))
            slot = candidate;
    }
    *next = slot;
    struct pool *pool = pools.lookup(&slot);
    if (!slot || !pool) {
        count_lost(LOST_POOL);
        return 0;
    }
    __builtin_memset(pool, 0, sizeof(*pool));
    pool_target.update(&slot, &target);
    return p->pool = slot;
}

/* ---- telling ---- */
/* Frequent messages wait for the reader's tick: waking it for each cost up to 235 us. Only every half of the ring, so
 * that a fast training does not fill it before the tick. */
INLINE u64 quietly(u32 size) {
    u32 zero = 0;
    u64 *bytes = quiet_bytes.lookup(&zero);
    if (!bytes)
        return 0;
    __sync_fetch_and_add(bytes, size);
    if (*bytes < 512 << 10)
        return BPF_RB_NO_WAKEUP;
    *bytes = 0;
    return BPF_RB_FORCE_WAKEUP;
}

/* All but its name and the steps that it ends. */
INLINE void fill_row(struct row *r, struct ledger *l, u32 kind) {
    u32 tgid = l->tgid; /* on the stack: the verifier of 6.1 takes no map key from a message */
    struct process *p = processes.lookup(&tgid);
    r->message = MESSAGE_ROW;
    r->kind = kind;
    r->at = l->at;
    r->opened = l->opened;
    r->tid = l->tid;
    r->tgid = l->tgid;
    r->steps = l->steps;
    r->fetches = l->fetches;
    r->inline_fetches = l->inline_fetches;
    r->backwards = l->backwards;
    r->major_faults = l->major_faults;
    r->swap_faults = AT_FILE_FAULT_INO ? l->swap_faults : UNTOLD;
    r->region = l->region;
    r->gpu_memory_ns = p ? p->gpu_memory_ns : 0;
    *(u64 *)&r->gpu_allocations = p ? *(u64 *)&p->gpu_allocations : 0; /* and gpu_frees */
    r->collected_ns = p ? p->collected_ns : 0;
    r->ran_ns = FOLLOW(u64, current_task(), OFFSET_TASK_RAN); /* each thread tells its own rows */
    read_kernel(r->files, sizeof(r->files), l->files);        /* a tenth of the code of a memcpy */
#pragma nounroll
    for (u32 i = 0; i < CELLS; i += 4) { /* two fifths of the instructions of a helper's call */
        r->acc[i] = l->acc[i];
        r->acc[i + 1] = l->acc[i + 1];
        r->acc[i + 2] = l->acc[i + 2];
        r->acc[i + 3] = l->acc[i + 3];
    }
    u32 slot = p ? p->pool : 0;
    struct pool *pool = slot ? pools.lookup(&slot) : 0;
    if (!pool || read_kernel(r->pool, sizeof(r->pool), pool))
        __builtin_memset(r->pool, 0, sizeof(r->pool));
    r->shared = pool ? pool->shared : 0;
}
INLINE void ends_step(struct ledger *l) {
    l->step_at = l->row_at = l->at;
    l->row_fetches = l->fetches;
    l->row_backwards = l->backwards;
}
/* Rows of steps that are in time, and alike, become one row where user space has made room for it, which it does for
 * drivers that step evenly: a row costs both sides more than all else that is done for a step. It is told before
 * another row of its thread is, and so what a late step began with is known. User space may read it here before that,
 * and knows it again by where it began. */
BPF_HASH(held, u32, struct held, ALARMS); /* by thread */
INLINE void tell_held(struct ledger *l) {
    u32 tid = l->tid;
    struct held *h = held.lookup(&tid);
    if (!h || !h->row.held)
        return;
    if (h->row.opened == l->opened) { /* else of another thread with this id */
        if (ring.ringbuf_output(&h->row, sizeof(h->row), quietly(sizeof(h->row))))
            count_lost(LOST_ROW);
#pragma unroll
        for (u32 i = 0; i < STEP_FILES; i++) { /* what is left was written since */
            l->files[i].io_ns -= h->row.files[i].io_ns;
            l->files[i].gap_ns -= h->row.files[i].gap_ns;
            l->files[i].bytes -= h->row.files[i].bytes;
            l->files[i].calls -= h->row.files[i].calls;
        }
    }
    h->row.held = 0;
}
/* After tell_held(). */
INLINE void emit_row(struct ledger *l, u32 kind, void *user_name, u64 flags) {
    struct row *r = ring.ringbuf_reserve(sizeof(*r));
    if (!r) {
        count_lost(LOST_ROW);
        return;
    }
    fill_row(r, l, kind);
    __builtin_memset(l->files, 0, sizeof(l->files));
    r->held = 0;
    r->name[0] = 0;
    if (user_name)
        read_user_string(r->name, NAME_SIZE, user_name);
    if (kind == ROW_OPTIMIZER || kind == ROW_BACKWARD || kind == ROW_GPU || kind == ROW_RHYTHM)
        ends_step(l);
    ring.ringbuf_submit(r, flags);
}
INLINE struct process_message *begin_process(u32 kind, u32 tgid) {
    struct process_message *m = ring.ringbuf_reserve(sizeof(*m));
    if (!m) {
        count_lost(LOST_PROCESS);
        return 0;
    }
    __builtin_memset(m, 0, sizeof(*m));
    m->message = MESSAGE_PROCESS;
    m->kind = kind;
    m->at = bpf_ktime_get_ns();
    m->tgid = tgid;
    return m;
}
INLINE void emit_candidate(u32 tgid, u32 why, u64 flags) {
    struct candidate_message *m = ring.ringbuf_reserve(sizeof(*m));
    if (!m) {
        count_lost(LOST_CANDIDATE);
        return;
    }
    m->message = MESSAGE_CANDIDATE;
    m->why = why;
    m->at = bpf_ktime_get_ns();
    m->tgid = tgid;
    m->unused = 0;
    ring.ringbuf_submit(m, flags);
}
