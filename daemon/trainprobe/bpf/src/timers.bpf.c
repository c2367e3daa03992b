/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Do the processors run at all? A hypervisor, or firmware, keeps one from the kernel: no run queue shows it, and steal
 * time is read too seldom to say when. Its timers end late. Only hard ones of CLOCK_MONOTONIC count: other clocks are
 * set at times, and soft ones wait for a softirq. */
#define MONOTONIC  0              /* hrtimer_clock_base.index */
#define LONGEST_NS 10000000000ull /* more is a clock that jumped */

BPF_ARRAY(stood_until, u64, 1); /* what was told until when: of each time the part that no other processor told */

int on_timer(struct bpf_raw_tracepoint_args *ctx) { /* hrtimer_expire_entry(timer, now) */
    void *timer = (void *)ctx->args[0], *base = 0;
    u64 due = 0, expired = 0;
    if (!OFFSET_TIMER_DUE || !OFFSET_TIMER_CLOCK)
        return 0;
    READ(due, timer, OFFSET_TIMER_DUE);
    READ(expired, ctx->args[1], 0);
    if (expired < due + STOOD_STILL_NS || expired > due + LONGEST_NS)
        return 0;
    u32 clock = ~MONOTONIC, first = 0;
    READ(base, timer, OFFSET_TIMER_BASE);
    READ(clock, base, OFFSET_TIMER_CLOCK);
    u64 *until = stood_until.lookup(&first), began = due;
    if (!until || clock != MONOTONIC)
        return 0;
    if (began < *until)
        began = *until;
    if (expired < began + STOOD_STILL_NS)
        return 0;
    *until = expired;
    struct standstill_message *m = ring.ringbuf_reserve(sizeof(*m));
    if (!m)
        return 0;
    m->message = MESSAGE_STANDSTILL;
    m->unused = 0;
    m->at = expired;
    m->ns = expired - began;
    ring.ringbuf_submit(m, quietly(sizeof(*m)));
    return 0;
}
