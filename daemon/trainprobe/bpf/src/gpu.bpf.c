/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* When does a thread wait for the GPU, or for its memory? Uprobes on the calls of CUDA that wait, allocate and free.
 *
 * Where such a call ends is told by its return address, which lies on the stack when it begins: user space puts a probe
 * on that place, for that process alone, and from then on the return is seen there, with the result still in its
 * register. A uretprobe would replace the return address: what unwinds the stack meanwhile is led astray, and since
 * Linux 6.11 the trampoline makes a system call that a container's seccomp filter may answer with the process's death.
 */
struct gpu_call {
    u64 site, stack; /* where it returns to, and the stack pointer at its first instruction */
    u64 at;
    u32 kind, armed; /* armed: a probe was on the site when it began */
};
BPF_TABLE("lru_hash", u32, struct gpu_call, gpu_calls, 2048); /* by thread: the outermost open one */
BPF_TABLE("lru_hash", struct gpu_site, u8, gpu_sites, 8192);

#define MOST_SITES 160 /* that are told of one process: more than user space arms */

INLINE void tell_site(struct gpu_site *site) {
    u8 told = SITE_TOLD;
    struct process *p = processes.lookup(&site->tgid);
    if (!p || p->gpu_sites >= MOST_SITES)
        return;
    if (gpu_sites.insert(site, &told))
        return; /* another thread was first */
    p->gpu_sites++;
    struct site_message *m = ring.ringbuf_reserve(sizeof(*m));
    if (!m) {
        gpu_sites.delete(site);
        count_lost(LOST_SITE);
        return;
    }
    m->message = MESSAGE_SITE;
    m->tgid = site->tgid;
    m->at = bpf_ktime_get_ns();
    m->address = site->address;
    ring.ringbuf_submit(m, BPF_RB_FORCE_WAKEUP);
}
INLINE u64 return_address(struct pt_regs *ctx) {
#ifdef LINK_REGISTER
    return LINK_REGISTER(ctx);
#else
    u64 address = 0;
    read_user(&address, 8, (void *)STACK_POINTER(ctx));
    return address;
#endif
}
INLINE int begin_gpu(struct pt_regs *ctx, u32 kind) {
    u32 tid = this_thread();
    u8 level;
    if (!traced(tid, &level))
        return 0;
    struct ledger *l = level == LEVEL_FULL ? find_ledger(tid) : 0;
    if (!l && kind == GPU_WAIT)
        return 0; /* only of drivers is it known what they do */
    struct gpu_call c = {.stack = STACK_POINTER(ctx), .kind = kind};
    struct gpu_call *open = gpu_calls.lookup(&tid);
    if (open && open->armed && open->stack > c.stack)
        return 0; /* inside another one: cudaMemcpy calls what cudaStreamSynchronize does */
    struct gpu_site site = {.tgid = this_process()};
    site.address = c.site = return_address(ctx);
    u8 *state = gpu_sites.lookup(&site);
    if (!state)
        tell_site(&site);
    else if (*state == SITE_REFUSED)
        return 0;
    c.armed = state && *state == SITE_ARMED;
    c.at = bpf_ktime_get_ns();
    gpu_calls.update(&tid, &c);
    if (!l)
        return 0;
    BUSY(l);
    out_of_gpu(l);
    charge(l, c.at, l->leaf);
    l->gpu = 1;
    l->gpu_mark = *cell_of(l, LEAF_GPU);
    l->leaf = on_cpu(l);
    DONE(l);
    return 0;
}
INLINE void count_memory(struct gpu_call *c, u64 now, u32 result) {
    u32 tgid = this_process();
    struct process *p = processes.lookup(&tgid);
    if (!p)
        return;
    __sync_fetch_and_add(&p->gpu_memory_ns, now - c->at);
    __sync_fetch_and_add(c->kind == GPU_FREE ? &p->gpu_frees : &p->gpu_allocations, 1);
    if (c->kind == GPU_ALLOCATE && result == 2) /* cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY */
        tell_failure(CALL_GPU_ALLOCATE, 12, -1, 0);
}
int on_gpu_return(struct pt_regs *ctx) { /* at a place that calls of CUDA return to: perhaps one has */
    u32 tid = this_thread();
    struct gpu_call *open = gpu_calls.lookup(&tid);
    if (!open || open->site != INSTRUCTION_POINTER(ctx) || open->stack + RETURN_POPS != STACK_POINTER(ctx))
        return 0;
    struct gpu_call c = *open;
    gpu_calls.delete(&tid);
    u64 now = bpf_ktime_get_ns();
    struct ledger *l = ledger_of(tid, LEVEL_FULL);
    if (l && l->gpu) {
        BUSY(l);
        charge(l, now, l->leaf);
        l->gpu = 0;
        l->leaf = on_cpu(l);
        DONE(l);
    }
    if (c.kind != GPU_WAIT)
        count_memory(&c, now, RESULT(ctx));
    return 0;
}

/* ---- the clock of a training that nothing else marks the steps of ----
 * Each call that may recur once a step is counted by thread and place, with the times between two of them; user space
 * finds the one that does, and from then on it makes a row. */
BPF_TABLE("lru_hash", struct gpu_caller, struct gpu_beat, gpu_beats, 2048);
BPF_HASH(gpu_clocks, u32, struct gpu_caller,
         256);            /* by process that needs one: the call that is it; what 0: not known */
#define SHORTEST_STEP 977 /* about a millisecond: what comes sooner is no step, and would fill the ring */
BPF_PERCPU_ARRAY(blank_beat, struct gpu_beat, 1);

INLINE u32 half_octaves(u32 value) {
    u32 octave = 0, left = value;
#pragma unroll
    for (int bits = 16; bits; bits >>= 1)
        if (left >> bits) {
            left >>= bits;
            octave += bits;
        }
    return octave ? 2 * octave + (value >> (octave - 1) & 1) : 0;
}
/* What several of these programs end with is a program of its own, that they go over to: the compiler would else make
 * each of them with all of it, which takes it 0.15 s. */
BPF_PROG_ARRAY(gpu_tails, 2);
enum { TAIL_WAIT, TAIL_STEP };

INLINE u32 gaps(struct gpu_beat *b, u32 least) { /* all since its process began: as many as bursts before this one */
    u32 first = half_octaves(least), number = 0;
#pragma clang loop unroll(disable)
    for (u32 place = 0; place < BEAT_INTERVALS; place++)
        if (place >= first)
            number += b->intervals[place];
    return number;
}
int on_gpu_step(struct pt_regs *ctx) { /* the call that comes once a step was counted just now */
    struct gpu_caller key = {};
    u32 tid = this_thread(), tgid = this_process();
    struct gpu_caller *clock = gpu_clocks.lookup(&tgid);
    if (!clock)
        return 0;
    key.tgid = clock->tgid;
    key.tid = clock->tid;
    key.what = clock->what;
    u32 least = clock->least, starting = clock->starting;
    struct gpu_beat *b = gpu_beats.lookup(&key);
    struct ledger *l = b ? driver(tid, tgid) : 0;
    if (!l)
        return 0;
    struct gpu_call *open = gpu_calls.lookup(&tid);
    BUSY(l);
    if (!open || !open->armed)
        out_of_gpu(l);
    if (!l->steps) {
        u32 before = least ? gaps(b, least) : b->count - 1, first = least ? starting : 0;
        l->steps = before > first ? before - first : 0; /* one whose count was evicted begins anew */
    }
    emit_mark(l, bpf_ktime_get_ns(), least ? ROW_RHYTHM : ROW_GPU, 0);
    l->steps++;
    DONE(l);
    return 0;
}
INLINE int beat(struct pt_regs *ctx, u64 what, u32 kind) {
    struct gpu_caller key = {.tgid = this_process(), .tid = this_thread(), .what = what};
    u32 tgid = key.tgid, zero = 0;
    struct gpu_caller *clock = gpu_clocks.lookup(&tgid);
    if (!clock)
        return 0;
    u64 now = bpf_ktime_get_ns(), units = 0;
    struct gpu_beat *b = gpu_beats.lookup(&key);
    if (b) {
        units = (now - b->last) >> 10;
        u64 place = half_octaves(units >> 32 ? 0xffffffff : units);
        if (place > BEAT_INTERVALS - 1)
            place = BEAT_INTERVALS - 1;
        asm volatile("" : "+r"(place)); /* as in cell_of */
        if (place < BEAT_INTERVALS)
            b->intervals[place]++;
    } else {
        struct gpu_beat *blank = blank_beat.lookup(&zero);
        if (!blank || gpu_beats.update(&key, blank))
            return 0;
        b = gpu_beats.lookup(&key);
        if (!b)
            return 0;
        b->kind = kind;
    }
    b->last = now;
    b->count++;
    if (clock->what == what && clock->tid == key.tid && units >= (clock->least ? clock->least : SHORTEST_STEP))
        gpu_tails.call(ctx, TAIL_STEP);
    return 0;
}
int on_gpu_graph(struct pt_regs *ctx) { /* (graph, ...) */
    return beat(ctx, ARGUMENT_1(ctx), BEAT_WAIT);
}
int on_gpu_kernel(struct pt_regs *ctx) { /* (function, ...) */
    return beat(ctx, ARGUMENT_1(ctx), BEAT_LAUNCH);
}
int on_gpu_kernel_configured(struct pt_regs *ctx) { /* (configuration, function, ...) */
    return beat(ctx, ARGUMENT_2(ctx), BEAT_LAUNCH);
}
int on_gpu_upload(struct pt_regs *ctx) {
    return beat(ctx, return_address(ctx), BEAT_WAIT);
}
/* PyEval_SaveThread(): what runs a model from Python lets go of the interpreter's lock meanwhile. */
int on_release(struct pt_regs *ctx) {
    return beat(ctx, return_address(ctx), BEAT_RELEASE);
}

int on_gpu_wait(struct pt_regs *ctx) {
    begin_gpu(ctx, GPU_WAIT);
    return beat(ctx, return_address(ctx), BEAT_WAIT);
}
/* cudaMemcpyAsync(to, from, size, kind): to memory that is not pinned it waits until all before it is done. */
int on_gpu_copy(struct pt_regs *ctx) {
    u32 kind = ARGUMENT_4(ctx);
    if (kind == 2 || kind == 4) /* cudaMemcpyDeviceToHost, cudaMemcpyDefault */
        gpu_tails.call(ctx, TAIL_WAIT);
    return beat(ctx, return_address(ctx), BEAT_WAIT);
}
int on_gpu_allocate(struct pt_regs *ctx) {
    return begin_gpu(ctx, GPU_ALLOCATE);
}
int on_gpu_free(struct pt_regs *ctx) {
    return begin_gpu(ctx, GPU_FREE);
}
