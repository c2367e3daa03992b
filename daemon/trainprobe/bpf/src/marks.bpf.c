/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What does the program do? Marks inside it, by uprobes on libtorch. No uretprobes: they replace the return address,
 * and an exception that unwinds through the frame, as a backward that raises does, would end the training. */
#define DEEP_FETCH_NS 50000000 /* a fetch longer than this tells its end at once, in ROW_FETCH_END */

INLINE u8 region_of(struct ledger *l) {
    if (l->nested)
        return l->regions[(l->nested - 1) & 3];
    return l->grads_off ? REGION_NO_GRAD : REGION_STEP;
}
/* Book the time so far on the old region, then enter the new one. A mark is user code: no call is in flight, no fault.
 */
INLINE void settle(struct ledger *l, u64 now) {
    charge(l, now, l->leaf);
    l->region = region_of(l);
    l->gpu = 0;
    l->gap_ino = 0;
    l->fault_at = 0;
    l->reclaim = 0;
    l->call = -1;
    l->leaf = on_cpu(l);
}
INLINE s32 open_at(struct ledger *l, u8 region) { /* index of the innermost open region of this kind, or -1 */
    s32 found = -1;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < l->nested && l->regions[i] == region)
            found = i;
    return found;
}
INLINE void push(struct ledger *l, u8 region) {
    if (l->nested >= 4)
        return;
    l->regions[l->nested & 3] = region;
    l->region_depth[l->nested & 3] = l->depth;
    l->nested++;
}
INLINE void leave(struct ledger *l, u8 region) { /* the region and all that is open inside it */
    s32 at = open_at(l, region);
    if (at >= 0)
        l->nested = at;
}
INLINE void end_backward(struct ledger *l) {
    if (open_at(l, REGION_BACKWARD) >= 0)
        l->grads_off = 0; /* it began with gradients; what it switched, C++ has restored unseen */
    leave(l, REGION_BACKWARD);
    l->graph_task = 0;
    l->closing = 0;
}
INLINE void end_backward_elsewhere(struct ledger *l) { /* in sched_switch: the thread that waited runs again */
    end_backward(l);
    l->region = region_of(l);
}
/* A record or backward whose end never came, as where symbols are stripped or execute() raised early: this mark, at the
 * level of the loop, proves that it is over. */
INLINE void close_unended(struct ledger *l) {
    if (!(l->saw_ends & 1)) {
        leave(l, REGION_FETCH);
        leave(l, REGION_OPTIMIZER);
    }
    if (!l->graph_task || !(l->saw_ends & 2))
        end_backward(l);
}
#define BUSY(l)                                                                                                        \
    (l)->busy = 1;                                                                                                     \
    asm volatile("" ::: "memory");                                                                                     \
    if ((l)->run != RUN_ON)                                                                                            \
    must_run(l, current_task(), bpf_ktime_get_ns())
#define DONE(l)                                                                                                        \
    asm volatile("" ::: "memory");                                                                                     \
    (l)->busy = 0

/* Whoever makes steps in a watched process is a driver; a thread seen for the first time gets its ledger here. */
INLINE struct ledger *driver(u32 tid, u32 tgid) {
    struct process *p = processes.lookup(&tgid);
    if (!p || p->tentative)
        return 0;
    struct ledger *l = find_ledger(tid);
    if (!l && p->drivers < DRIVERS) {
        __sync_fetch_and_add(&p->drivers, 1);
        if (p->drivers <= DRIVERS) /* else another processor took the last place: at the next mark again */
            l = open_ledger(tid, tgid, LEVEL_FULL, RUN_ON, 0);
        if (!l)
            __sync_fetch_and_add(&p->drivers, -1);
    }
    u8 *byte = level_of(tid);
    if (l && byte)
        *byte = LEVEL_FULL;
    return l;
}
/* Where the row of a step that ends now may wait: the step was in time. 0: it is told by itself. */
INLINE struct held *place_to_wait(struct alarm *a, struct ledger *l) {
    u32 tid = l->tid;
    u64 length = l->at - l->row_at;
    return a && a->together && length < a->limit && length < HELD_NS ? held.lookup(&tid) : 0;
}
/* Whether no step can be added to those that wait: it is another, or they are as many as may be. */
INLINE bool is_complete(struct held *h, struct ledger *l, u32 kind, u32 fetches, u32 backwards) {
    struct row *r = &h->row;
    return r->held && (r->opened != l->opened || r->kind != kind || h->fetches != fetches ||
                       h->backwards != backwards || r->held >= HELD_STEPS || l->at - r->began >= HELD_NS);
}
INLINE void wait_with(struct held *h, struct ledger *l, u32 kind, char *text, u32 fetches, u32 backwards) {
    struct row *r = &h->row;
    u32 place = r->held;
    if (!place) {
        r->began = l->row_at;
        r->name[0] = 0;
        if (text)
            read_user_string(r->name, NAME_SIZE, text);
        h->fetches = fetches;
        h->backwards = backwards;
    }
    fill_row(r, l, kind);
    r->lengths[place & (HELD_STEPS - 1)] = l->at - l->row_at;
    r->held = place + 1;
    ends_step(l);
}
/* The row of a mark, and before a driver's first one the row that says so. */
INLINE void emit_mark(struct ledger *l, u64 now, u32 kind, char *text) {
    charge(l, now, l->leaf);
    bool first = !l->driver;
    l->driver = 1;
    u32 fetches = l->fetches - l->row_fetches, backwards = l->backwards - l->row_backwards;
    u32 tid = l->tid;
    struct alarm *a = alarms.lookup(&tid);
    struct held *h = first ? 0 : place_to_wait(a, l);
    if (h && kind == ROW_BACKWARD && l->steps)
        return; /* inside an optimiser's step, as Lightning does it: that step's next row counts it */
    if (!h || is_complete(h, l, kind, fetches, backwards))
        tell_held(l);
    if (h) {
        wait_with(h, l, kind, text, fetches, backwards);
        return;
    }
    u64 flags = is_late(a, l, now, 0, true) ? BPF_RB_FORCE_WAKEUP : quietly(sizeof(struct row));
    l->pool = 0; /* it no longer works for somebody else */
#pragma nounroll
    for (u32 i = first ? 0 : 1; i < 2; i++)
        emit_row(l, i ? kind : ROW_DRIVER, i ? text : 0, i ? flags : BPF_RB_FORCE_WAKEUP);
}
#ifdef AUTO
BPF_TABLE("lru_hash", u32, u8, told_marks, 1024);
INLINE void tell_mark(u32 tgid) { /* once; forgotten when the process ends: ids come back */
    u8 one = 1;
    if (told_marks.lookup(&tgid))
        return;
    told_marks.update(&tgid, &one);
    emit_candidate(tgid, WHY_MARK, BPF_RB_FORCE_WAKEUP);
}
#else
INLINE void tell_mark(u32 tgid) {
}
#endif

/* Another thread's backward inside the driver's: the autograd engine's device threads, which run checkpointed segments
 * again while the driver waits. They are no drivers. */
INLINE bool works_for_driver(u32 tid, u32 tgid) {
    struct process *p = processes.lookup(&tgid);
    u32 other = p ? p->driver : 0;
    if (!other || other == tid)
        return false;
    struct ledger *l = find_ledger(other);
    return l && l->graph_task && l->run == RUN_BLOCKED;
}
/* A backward needs gradients, so they are on, though nobody was seen switching them on: a custom Function's forward
 * runs with gradients off, and a no_grad() inside it switches them "back" to off; C++ then restores them where no probe
 * is. What was booked on NO_GRAD since then was the forward pass. */
INLINE void take_back_no_grad(struct ledger *l, u64 now) {
    charge(l, now, l->leaf);
#pragma nounroll
    for (u32 i = 0; i < LEAVES; i++) {
        u64 *cell = &l->acc[(REGION_NO_GRAD * LEAVES + i) & (CELLS - 1)];
        u64 more = *cell - l->no_grad[i];
        *cell -= more;
        l->acc[(REGION_STEP * LEAVES + i) & (CELLS - 1)] += more;
    }
    l->grads_off = 0;
    l->region = region_of(l);
}
int on_backward(struct pt_regs *ctx) { /* Engine::execute(...) */
    u32 tid = this_thread(), tgid = this_process();
    u8 *byte = level_of(tid);
    u8 level = byte ? *byte : 0;
    if (!level || level & QUIET) {
        tell_mark(tgid);
        return 0;
    }
    struct ledger *l = find_ledger(tid);
    if ((!l || !l->driver) && works_for_driver(tid, tgid))
        return 0;
    l = driver(tid, tgid);
    if (!l)
        return 0;
    BUSY(l);
    out_of_gpu(l);
    if (l->closing)
        end_backward(l);
    if (open_at(l, REGION_BACKWARD) >= 0 && !l->graph_task)
        end_backward(l); /* it never got as far as a GraphTask */
    if (open_at(l, REGION_BACKWARD) < 0) {
        if (!(l->saw_ends & 1))
            close_unended(l);
        u64 now = bpf_ktime_get_ns();
        if (l->grads_off)
            take_back_no_grad(l, now);
        if (!l->steps || open_at(l, REGION_OPTIMIZER) >= 0)
            emit_mark(l, now, ROW_BACKWARD, 0); /* elsewhere an optimizer's row follows, and counts it */
        l->step_at = now;
        l->backwards++;
        push(l, REGION_BACKWARD);
        settle(l, now);
    }
    DONE(l);
    return 0;
}
int on_graph_task(struct pt_regs *ctx) { /* Engine::execute_with_graph_task(this, const shared_ptr<GraphTask> &, ...) */
    u32 tid = this_thread(), tgid = this_process();
    struct ledger *l = ledger_of(tid, LEVEL_FULL);
    u64 task = 0;
    if (!l || l->graph_task || open_at(l, REGION_BACKWARD) < 0)
        return 0;
    read_user(&task, 8, (void *)RETURNING_ARGUMENT_2(ctx));
    l->graph_task = task;
    struct process *p = processes.lookup(&tgid);
    if (p)
        p->driver = tid;
    return 0;
}
int on_backward_end(struct pt_regs *ctx) { /* GraphTask::mark_as_completed_and_run_post_processing(this), errors too */
    u32 tid = this_thread(), tgid = this_process();
    u8 *byte = level_of(tid);
    if (!byte || !*byte || *byte & QUIET)
        return 0;
    u64 task = ARGUMENT_1(ctx);
    struct ledger *l = find_ledger(tid);
    if (l && *byte == LEVEL_FULL) {
        l->saw_ends |= 2;
        if (l->graph_task != task)
            return 0;
        BUSY(l);
        end_backward(l);
        settle(l, bpf_ktime_get_ns());
        DONE(l);
        return 0;
    }
    struct process *p = processes.lookup(&tgid); /* a device thread: the driver waits for it */
    u32 other = p ? p->driver : 0;
    l = other ? find_ledger(other) : 0;
    if (!l)
        return 0;
    l->saw_ends |= 2;
    if (l->graph_task == task)
        l->closing = 1;
    return 0;
}

enum { RECORD_OTHER, RECORD_FETCH, RECORD_FETCH_INLINE, RECORD_STEP, RECORD_ZERO_GRAD };
/* By the name: "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "Optimizer.step#Adam.step". */
INLINE u32 record_kind(char *text) {
    u64 name[3] = {};
    if (read_user(name, sizeof(name), text)) /* its last bytes may lie behind the end of what is mapped */
        read_user_string((char *)name, sizeof(name), text);
    if (name[0] == 0x746172656d756e65ull && name[1] == 0x6f4c617461442865ull && /* "enumerate(DataLoader)#_" */
        (name[2] & 0xffffffffffffull) == 0x232972656461ull)
        return name[2] >> 56 == 'S' ? RECORD_FETCH_INLINE : RECORD_FETCH;
    if (name[0] != 0x657a696d6974704full) /* "Optimize" */
        return RECORD_OTHER;
    if ((name[1] & 0xffffffffffffffull) == 0x23706574732e72ull) /* "r.step#" */
        return RECORD_STEP;
    return (name[1] & 0xffffff) == 0x7a2e72 ? RECORD_ZERO_GRAD : RECORD_OTHER; /* "r.z" */
}
INLINE void begin_fetch(struct ledger *l, bool inside) {
    if (open_at(l, REGION_FETCH) >= 0)
        return; /* a loader inside a loader */
    end_backward(l);
    l->nested = 0;
    l->fetches++;
    l->inline_fetches += inside;
    push(l, REGION_FETCH);
    settle(l, bpf_ktime_get_ns());
    l->fetch_at = l->at;
}
INLINE void begin_step(struct ledger *l, char *text) {
    if (open_at(l, REGION_OPTIMIZER) >= 0)
        return; /* an optimizer inside an optimizer */
    u64 now = bpf_ktime_get_ns();
    emit_mark(l, now, ROW_OPTIMIZER, text);
    l->steps++;
    push(l, REGION_OPTIMIZER);
    settle(l, now);
}
int on_record(struct pt_regs *ctx) { /* record_function_enter_new(const std::string &name, ...) */
    u32 tid = this_thread();
    u8 *byte = level_of(tid);
    u8 level = byte ? *byte : 0;
    if (!level || level & QUIET)
        return 0;
    char *text = 0;
    read_user(&text, 8, (void *)RETURNING_ARGUMENT_1(ctx)); /* the first word in both ABIs of std::string */
    u32 kind = record_kind(text);
    struct ledger *l = level == LEVEL_FULL ? find_ledger(tid) : 0;
    if (kind == RECORD_STEP && (!l || !l->driver))
        l = driver(tid, this_process());
    if (!l)
        return 0;
    BUSY(l);
    out_of_gpu(l);
    l->depth++;
    if (l->closing)
        end_backward(l);
    if (kind != RECORD_OTHER)
        close_unended(l);
    if (kind == RECORD_FETCH || kind == RECORD_FETCH_INLINE)
        begin_fetch(l, kind == RECORD_FETCH_INLINE);
    if (kind == RECORD_STEP)
        begin_step(l, text);
    DONE(l);
    return 0;
}
int on_record_end(struct pt_regs *ctx) { /* record_function_exit_new(...) */
    struct ledger *l = ledger_of(this_thread(), LEVEL_FULL);
    if (!l)
        return 0;
    BUSY(l);
    s32 ended = -1;
#pragma unroll
    for (int i = 3; i >= 0 && l->nested; i--)
        if (i < l->nested && l->regions[i] != REGION_BACKWARD && l->region_depth[i] >= l->depth)
            ended = i;
    if (ended >= 0) {
        u64 now = bpf_ktime_get_ns();
        bool deep = l->regions[ended & 3] == REGION_FETCH && now - l->fetch_at > DEEP_FETCH_NS;
        l->nested = ended;
        if (deep) {
            charge(l, now, l->leaf);
            tell_held(l);
            emit_row(l, ROW_FETCH_END, 0, quietly(sizeof(struct row)));
        }
        settle(l, now);
    }
    if (l->depth > 0)
        l->depth--;
    l->saw_ends |= 1;
    DONE(l);
    return 0;
}

/* An optimizer's step switches gradients off and, before it ends, back: its end is a mark. */
INLINE bool switches_back(struct ledger *l) {
    return l->nested && l->saw_ends & 1 && l->regions[(l->nested - 1) & 3] == REGION_OPTIMIZER;
}
/* grads_off: 1 by set_grad_enabled(), and INFERENCE for each torch.inference_mode() that is open. */
#define INFERENCE 2

INLINE void switch_grads(struct ledger *l, u8 off) {
    BUSY(l);
    u8 were_off = l->grads_off;
    l->grads_off = off;
    if (!l->nested && l->region != region_of(l))
        settle(l, bpf_ktime_get_ns());
    if (off && !were_off)
        read_kernel(l->no_grad, sizeof(l->no_grad), &l->acc[REGION_NO_GRAD * LEAVES]);
    DONE(l);
}
/* set_grad_enabled of torch._C: hit by torch.no_grad() and its kin, a few times a step. (c10::GradMode::set_enabled
 * would be hit for every node of the graph.) */
INLINE int set_grads(void *object) {
    struct ledger *l = ledger_of(this_thread(), LEVEL_FULL);
    u32 digit = 1;
    if (!l || switches_back(l))
        return 0;
    if (read_user(&digit, 4, object + 24))
        return 0; /* PyLong's first digit: True is 1, False 0 */
    switch_grads(l, (l->grads_off & ~1) | !digit);
    return 0;
}
/* __enter__ and __exit__ of torch._C._InferenceMode. inference_mode(False) counts, too: it is balanced, and a backward
 * in it takes back what was booked. */
INLINE int infer(u8 begins) {
    struct ledger *l = ledger_of(this_thread(), LEVEL_FULL);
    if (!l)
        return 0;
    u8 open = l->grads_off;
    if (begins && open <= 255 - INFERENCE)
        switch_grads(l, open + INFERENCE);
    else if (!begins && open >= INFERENCE)
        switch_grads(l, open - INFERENCE);
    return 0;
}
int on_inference(struct pt_regs *ctx) {
    return infer(1);
}
int on_inference_end(struct pt_regs *ctx) {
    return infer(0);
}
int on_set_grad(struct pt_regs *ctx) { /* (self, args, kwargs): item 0 of the tuple */
    void *item = 0;
    if (read_user(&item, 8, (void *)(ARGUMENT_2(ctx) + 24)))
        return 0;
    return set_grads(item);
}
int on_set_grad_single(struct pt_regs *ctx) {
    return set_grads((void *)ARGUMENT_2(ctx));
} /* (self, argument) */

/* A collector in a thread without a ledger holds the interpreter, and the driver waits. One collects at a time. */
INLINE int collect_elsewhere(u8 begins) {
    u32 tgid = this_process();
    struct process *p = processes.lookup(&tgid);
    if (!p)
        return 0;
    u64 now = bpf_ktime_get_ns();
    if (!begins && p->collecting)
        p->collected_ns += now - p->collecting;
    p->collecting = begins ? now : 0;
    return 0;
}
/* gc__start and gc__done, which CPython has where it was built with them (USDT): a nop each, twice a collection. */
INLINE int collect(u8 begins) {
    struct ledger *l = ledger_of(this_thread(), LEVEL_FULL);
    if (!l)
        return collect_elsewhere(begins);
    if (l->collecting == begins)
        return 0;
    BUSY(l);
    charge(l, bpf_ktime_get_ns(), l->leaf);
    l->collecting = begins;
    if (l->leaf == LEAF_CPU || l->leaf == LEAF_COLLECTOR)
        l->leaf = begins ? LEAF_COLLECTOR : LEAF_CPU;
    DONE(l);
    return 0;
}
int on_collector(struct pt_regs *ctx) {
    return collect(1);
}
int on_collector_end(struct pt_regs *ctx) {
    return collect(0);
}
int on_finalize(struct pt_regs *ctx) { /* Py_FinalizeEx(), and the function inside it: two rows do no harm */
    struct ledger *l = ledger_of(this_thread(), LEVEL_FULL);
    if (!l || !l->driver)
        return 0;
    BUSY(l);
    charge(l, bpf_ktime_get_ns(), l->leaf);
    tell_held(l);
    emit_row(l, ROW_FINALIZE, 0, BPF_RB_FORCE_WAKEUP);
    DONE(l);
    return 0;
}
