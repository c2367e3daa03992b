/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whose step is late? User space leaves word how long one may take, and looks the more seldom the calmer all is. */
#define LATE_NS 150000000 /* on_clock comes each 200 ms: most steps are over by then, and their rows tell */

BPF_HASH(alarms, u32, struct alarm, ALARMS); /* by thread */
BPF_ARRAY(alarm_threads, u32, ALARMS);       /* the same, for on_clock: up to the first 0 */
BPF_ARRAY(clock_seen, u64, 2);               /* when on_clock came last, and whether it found somebody late */
BPF_ARRAY(python_began, u64, 1);             /* one that may be a training, which nobody has looked at yet */
#define FOUND_NS 4000000000ull               /* no sooner: there are hosts where one begins every second */

/* Whether its step, which goes on or ends now, has taken longer; told once of each. */
INLINE bool is_late(struct alarm *a, struct ledger *l, u64 now, u64 slack, bool ends) {
    if (!a || (ends && !a->ended) || a->told == l->row_at || now - l->row_at < a->limit + slack)
        return false;
    a->told = l->row_at;
    return true;
}
INLINE void note_python(void) {
    u32 first = 0;
    u64 *began = python_began.lookup(&first);
    if (began && !*began)
        *began = bpf_ktime_get_ns();
}
int on_clock(struct bpf_perf_event_data *ctx) {
    u64 now = bpf_ktime_get_ns();
    u32 first = 0, second = 1;
    u64 *seen = clock_seen.lookup(&first), *late = clock_seen.lookup(&second);
    if (!seen || !late)
        return 0;
    *seen = now;
    *late = 0; /* in memory: of a variable the verifier follows both values through all turns */
#pragma nounroll
    for (u32 i = 0; i < ALARMS; i++) {
        u32 place = i; /* a copy: the verifier follows no counter on the stack */
        u32 *tid = alarm_threads.lookup(&place);
        if (!tid || !*tid)
            break;
        u32 key = *tid;
        struct ledger *l = find_ledger(key);
        if (l && is_late(alarms.lookup(&key), l, now, LATE_NS, false))
            *late = 1;
    }
    u64 *began = python_began.lookup(&first);
    if (began && *began && now - *began > FOUND_NS) {
        *began = 0;
        *late = 1;
    }
    u64 *word = *late ? ring.ringbuf_reserve(sizeof(*word)) : 0;
    if (word)
        ring.ringbuf_discard(word, BPF_RB_FORCE_WAKEUP); /* nothing but the wake-up */
    return 0;
}
