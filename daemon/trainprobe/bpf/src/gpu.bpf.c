/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
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
    p->gpu_sites++;
    gpu_sites.update(site, &told);
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
    struct ledger *l = level == LEVEL_FULL ? ledgers.lookup(&tid) : 0;
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
int on_gpu_wait(struct pt_regs *ctx) {
    return begin_gpu(ctx, GPU_WAIT);
}
/* cudaMemcpyAsync(to, from, size, kind): to memory that is not pinned it waits until all before it is done. */
int on_gpu_copy(struct pt_regs *ctx) {
    u32 kind = ARGUMENT_4(ctx);
    return kind == 2 || kind == 4 ? begin_gpu(ctx, GPU_WAIT) : 0; /* cudaMemcpyDeviceToHost, cudaMemcpyDefault */
}
int on_gpu_allocate(struct pt_regs *ctx) {
    return begin_gpu(ctx, GPU_ALLOCATE);
}
int on_gpu_free(struct pt_regs *ctx) {
    return begin_gpu(ctx, GPU_FREE);
}
