/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Do the processors run at all? A hypervisor, or firmware, keeps one from the kernel: no run queue shows it, and steal
 * time is read too seldom to say when. Its scheduler's tick ends late. Other timers say less: a sleep that goes on
 * behind a stop, or one until a time that has passed, is armed when it is due already. */
#define LONGEST_NS 10000000000ull /* more is a clock that jumped */

int on_timer(struct bpf_raw_tracepoint_args *ctx) { /* hrtimer_expire_entry(timer, now) */
    void *timer = (void *)ctx->args[0];
    u64 due = 0, expired = 0, function = 0;
    if (!OFFSET_TIMER_DUE || !OFFSET_TIMER_FUNCTION || !TICK)
        return 0;
    READ(due, timer, OFFSET_TIMER_DUE);
    READ(expired, ctx->args[1], 0);
    if (expired < due + STOOD_STILL_NS || expired > due + LONGEST_NS)
        return 0;
    READ(function, timer, OFFSET_TIMER_FUNCTION);
    if (function != TICK)
        return 0;
    struct standstill_message *m = ring.ringbuf_reserve(sizeof(*m));
    if (!m)
        return 0;
    m->message = MESSAGE_STANDSTILL;
    m->cpu = bpf_get_smp_processor_id();
    m->at = expired;
    m->ns = expired - due;
    ring.ringbuf_submit(m, quietly(sizeof(*m)));
    return 0;
}
