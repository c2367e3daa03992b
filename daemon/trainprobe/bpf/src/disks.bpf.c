/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How long do the host's block devices take? From the making of a request, as iostat's await, so that waiting in the
 * scheduler's queue counts: 0 with queue/iostats off. */
BPF_HASH(requests, struct request_key, struct request_use, 256);

int on_request_done(struct bpf_raw_tracepoint_args *ctx) { /* block_rq_complete(request, error, bytes) */
    void *request = (void *)ctx->args[0], *queue = 0, *disk = 0;
    u64 started = 0, bounds[] = {REQUEST_BOUNDS};
    u32 left = 0, flags = 0, major = 0, minor = 0, bucket = 0;
    READ(left, request, OFFSET_REQUEST_LEFT);
    READ(started, request, OFFSET_REQUEST_START);
    READ(flags, request, OFFSET_REQUEST_FLAGS);
    if (left > (u32)ctx->args[2] || !started ||
        (flags & 0xff) >= OPERATIONS) /* a part of it; not known; the driver's */
        return 0;
    READ(queue, request, OFFSET_REQUEST_QUEUE);
    READ(disk, queue, OFFSET_QUEUE_DISK);
    if (!disk)
        return 0;
    READ(major, disk, OFFSET_DISK_MAJOR);
    READ(minor, disk, OFFSET_DISK_MINOR);
    struct request_key key = {.dev = major << 20 | minor, .operation = flags & 0xff};
    struct request_use *use = requests.lookup(&key), blank = {};
    if (!use) {
        requests.insert(&key, &blank);
        use = requests.lookup(&key);
    }
    if (!use)
        return 0;
    u64 spent = bpf_ktime_get_ns() - started;
#pragma unroll
    for (int i = 0; i < REQUEST_BUCKETS - 1; i++)
        bucket += spent > bounds[i];
    if (bucket >= REQUEST_BUCKETS) /* never: for the verifier */
        return 0;
    __sync_fetch_and_add(&use->ns, spent);
    __sync_fetch_and_add(&use->count[bucket], 1);
    return 0;
}
