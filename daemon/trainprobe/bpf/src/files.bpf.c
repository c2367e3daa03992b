/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which files does a process write, how many bytes, how long? Totals per (process, file) in a map; the ring tells only
 * of beginnings and ends. A file closed after little (a log line) is told at most once a second: see close_use(). */
#define SMALL_BYTES 4096
#define SMALL_NS    1000000
#define QUIET_NS    1000000000ull
#define EMPTIED_NS  100000000ull
#define WRITERS     4096

BPF_HASH(calls, u32, struct call, 4096); /* of threads that have no ledger */
BPF_PERCPU_ARRAY(blank_call, struct call, 1);
BPF_TABLE("lru_hash", struct file_key, struct file_use, files, 8192);

INLINE struct call *call_of(struct ledger *l, u32 tid) {
    return l ? &l->flying : calls.lookup(&tid);
}
INLINE struct call *new_call(u32 tid) {
    u32 zero = 0;
    struct call *blank = blank_call.lookup(&zero);
    if (!blank)
        return 0;
    calls.update(&tid, blank);
    struct call *c = calls.lookup(&tid);
    if (!c)
        count_lost(LOST_FILE);
    return c;
}
INLINE void fill_file(struct file_message *m, u32 message, u32 kind, u64 now, struct file_key *key,
                      struct file_use *u) {
    m->message = message;
    m->kind = kind;
    m->at = now;
    m->key = *key;
    m->tid = this_thread();
    m->fd = u ? u->fd : -1;
    if (u)
        m->use = *u;
    else
        __builtin_memset(&m->use, 0, sizeof(m->use));
}
/* Opens, renames and unlinks are messages of 1.2 kB: of one user so many in 0.1 s, or they would fill the ring. */
#define NAMES_AT_ONCE 256
#define NAMES_NS      100000000ull

struct name_rate {
    u64 begun, count;
};
BPF_TABLE("lru_hash", u32, struct name_rate, name_rates, 1024);

INLINE bool too_many_names(u64 now) {
    u32 user = bpf_get_current_uid_gid();
    struct name_rate *r = name_rates.lookup(&user);
    if (!r) {
        struct name_rate first = {};
        name_rates.update(&user, &first);
        return false;
    }
    if (now - r->begun > NAMES_NS) {
        r->begun = now;
        r->count = 0;
    }
    return ++r->count > NAMES_AT_ONCE; /* of several processors one may be missed */
}
INLINE struct named_file_message *begin_named(u32 kind, u64 now, struct file_key *key, struct file_use *u) {
    struct named_file_message *m = 0;
    if (!too_many_names(now))
        m = ring.ringbuf_reserve(sizeof(*m));
    if (!m) {
        count_lost(LOST_FILE);
        return 0;
    }
    fill_file(&m->file, MESSAGE_NAMED_FILE, kind, now, key, u);
    m->walked = m->unused = 0;
    m->directory = m->new_directory = -1;
    m->path[0] = m->new_path[0] = 0;
    return m;
}
/* Told late, perhaps: a small one's end is kept until then. */
INLINE void tell_closed(u64 now, struct file_key *key, struct file_use *u) {
    struct file_message *m = ring.ringbuf_reserve(sizeof(*m));
    if (m) {
        fill_file(m, MESSAGE_FILE, FILE_CLOSED, u->closed ?: now, key, u);
        ring.ringbuf_submit(m, quietly(sizeof(*m)));
    } else {
        count_lost(LOST_FILE);
    }
    u->told = now;
    u->bytes = u->calls = u->write_ns = u->sync_ns = u->meta_ns = u->gap_ns = 0;
    u->error = 0;
}
/* Files open for writing, by process as struct process has them, but where no hash is computed: of all processes whose
 * ids end alike. What a killed one had open stays counted here, so 0 alone says something. */
struct writers {
    s32 of[WRITERS];
};
BPF_ARRAY(writers, struct writers, 1);
INLINE s32 *writers_like(u32 tgid) {
    u64 at = tgid % WRITERS * sizeof(s32);
    asm volatile("" : "+r"(at));
    return (s32 *)(VALUE_OF(VALUE_WRITERS) + (at & (WRITERS * sizeof(s32) - 1)));
}
INLINE bool may_be_writing(u32 tgid) {
    return *writers_like(tgid);
}
INLINE void count_writing(u32 tgid, s32 more) {
    struct process *p = processes.lookup(&tgid);
    if (!p)
        return;
    __sync_fetch_and_add(&p->writing, more);
    __sync_fetch_and_add(writers_like(tgid), more);
}
INLINE struct file_use *new_use(struct file_key *key, struct target *t, u64 now, s32 fd) {
    struct file_use u = {};
    u.opened = u.told = now;
    u.generation = t->generation;
    u.fd = fd;
    u.tid = this_thread();
    u.descriptors = 1;
    files.update(key, &u);
    count_writing(key->tgid, 1);
    return files.lookup(key);
}
/* A first write through a descriptor that was opened before we watched, or by somebody else: the path is not at hand,
 * so walk the names up to the root of the mount; user space knows where that is. */
INLINE void tell_found(u64 now, struct file_key *key, struct file_use *u, void *dentry) {
    struct named_file_message *m = begin_named(FILE_OPENED, now, key, u);
    if (!m)
        return;
    char *part = m->path;
#pragma nounroll
    for (int i = 0; i < PARTS; i++, part += PART_SIZE) {
        void *name = 0, *up = 0;
        *part = 0;
        if (dentry && !READ(name, dentry, OFFSET_DENTRY_NAME) && !READ(up, dentry, OFFSET_DENTRY_PARENT)) {
            read_kernel_string(part, PART_SIZE, name);
            dentry = up == dentry ? 0 : up;
        }
    }
    m->walked = dentry ? 2 : 1;
    ring.ringbuf_submit(m, quietly(sizeof(*m)));
}
INLINE bool is_reader(struct file_use *u, s32 fd) {
    return u->reader && u->reader == (u16)(fd + 1);
}
/* The totals of the file behind a descriptor that is being written; begins them where they are missing. */
INLINE struct file_use *use_of(struct file_key *key, struct target *t, u64 now, s32 fd) {
    struct file_use *u = files.lookup(key);
    u16 reader = is_writable(t) ? 0 : fd + 1;
    if (u && u->generation == t->generation && u->descriptors > 0)
        return u;
    if (u && u->generation == t->generation) { /* closed, and yet written: through a descriptor that we did not count */
        u->descriptors = 1;
        u->closed = 0;
        u->opened = u->calls ? u->opened : now;
        u->reader = reader;
        count_writing(key->tgid, 1);
        return u;
    }
    if (u && u->calls)
        tell_closed(now, key, u);
    u = new_use(key, t, now, fd);
    if (!u)
        return 0;
    u->reader = reader;
    tell_found(now, key, u, t->dentry);
    return u;
}
/* open(2) for writing returned. */
INLINE struct file_use *open_use(struct call *c, struct target *t, u64 now, s32 fd) {
    struct file_use *u = files.lookup(&c->key);
    bool again = u && u->generation == t->generation && (c->flags & 0300) != 0300; /* not O_CREAT | O_EXCL */
    if (again && u->descriptors > 0) {
        u->descriptors++;
        return u;
    }
    /* A log that is opened for every line is no news; one of a row of small saves, which O_TRUNC empties, is. */
    if (again && u->small && !((c->flags & 01000) && now - u->closed >= EMPTIED_NS)) {
        u->descriptors = 1;
        u->closed = 0;
        if (!u->calls)
            u->opened = c->at;
        count_writing(c->key.tgid, 1);
        return u;
    }
    if (u && u->calls)
        tell_closed(now, &c->key, u);
    u = new_use(&c->key, t, c->at, fd);
    if (!u)
        return 0;
    u->created = !!(c->flags & 01100); /* O_CREAT | O_TRUNC */
    u->append = !!(c->flags & 02000);
    struct named_file_message *m = begin_named(FILE_OPENED, now, &c->key, u);
    if (!m)
        return u;
    m->directory = c->directory;
    read_user_string(m->path, PATH_SIZE, (void *)c->path);
    ring.ringbuf_submit(m, quietly(sizeof(*m)));
    return u;
}
/* A descriptor was closed. */
INLINE void close_use(struct file_key *key, struct file_use *u, u64 now) {
    if (--u->descriptors > 0)
        return;
    u->descriptors = 0;
    u->closed = now;
    count_writing(key->tgid, -1);
    u->small = u->bytes < SMALL_BYTES && u->write_ns + u->sync_ns + u->meta_ns < SMALL_NS && !u->error;
    if (!u->small || now - u->told >= QUIET_NS)
        tell_closed(now, key, u);
}
INLINE bool is_failure(s64 result) { /* EAGAIN, EINTR and the kernel's own restart codes are none */
    return result < 0 && result > -512 && result != -11 && result != -4;
}
