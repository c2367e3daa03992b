/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What does the main thread of a program open before its first step: code, checkpoints, or data? User space reads the
 * record once, when the first step comes, and removes it: from then on nothing is looked at. */
#define TOGETHER_NS    100000000ull /* what follows so soon extends the span before it */
#define LEAST_RESTORED 65536        /* bytes of a file that may be a checkpoint */
#define LARGE          (64 << 20)   /* bytes: it may be one whatever its name */

/* By process. Where it is full, user space drops the oldest. A map that does so itself drops what is in use from five
 * processors on: each of them takes 128 free entries (fewer since d4adf1c9ee77). */
BPF_HASH(starts, u32, struct start, STARTS);
BPF_PERCPU_ARRAY(blank_start, struct start, 1);

INLINE void begin_start(u32 tgid, u64 now) {
    u32 zero = 0;
    struct start *blank = blank_start.lookup(&zero);
    if (!blank)
        return;
    blank->began = now;
    blank->fd = -1;
    starts.update(&tgid, blank);
}
/* The main thread of a process that has a record. */
INLINE struct start *start_of_caller(void) {
    u64 id = bpf_get_current_pid_tgid();
    u32 tid = id, tgid = id >> 32;
    u8 *level = tid == tgid ? level_of(tid) : 0;
    return level && *level ? starts.lookup(&tgid) : 0;
}
INLINE struct start_span *latest_span(struct start *s) {
    u32 place = s->spans_used - 1;
    asm volatile("" : "+r"(place));
    return s->spans_used ? &s->spans[place & (START_SPANS - 1)] : 0;
}
INLINE struct start_file *latest_file(struct start *s) {
    u32 place = s->files_used - 1;
    asm volatile("" : "+r"(place));
    return s->files_used ? &s->files[place & (START_FILES - 1)] : 0;
}
/* A file of a kind was opened. Libraries are code; whether one was opened last is kept. */
INLINE void note_open(struct start *s, u32 kind, u64 now) {
    struct start_span *last = latest_span(s);
    bool full = s->spans_used >= START_SPANS;
    if (last && (full || ((last->kind == START_DATA) == (kind == START_DATA) && now - last->end < TOGETHER_NS))) {
        last->end = now;
        last->kind = kind;
        last->opens++;
        return;
    }
    u32 place = s->spans_used;
    asm volatile("" : "+r"(place));
    struct start_span *next = &s->spans[place & (START_SPANS - 1)];
    next->begin = next->end = now;
    next->kind = kind;
    next->opens = 1;
    s->spans_used++;
}
INLINE u64 suffix_of(const char *text, u32 length) {
    u64 bits = 0;
#pragma unroll
    for (u32 i = 0; i < 8; i++)
        bits |= i < length ? (u64)(u8)text[i] << 8 * i : 0;
    return bits;
}
#define ENDS(text) (last >> (64 - 8 * (sizeof(text) - 1)) == suffix_of(text, sizeof(text) - 1))
/* A shared library's name may go on with its version. */
INLINE bool is_library(u64 before, u64 last) {
    bool found = ENDS(".so");
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        found |= (u32)(last >> 8 * i) == 0x2e6f732e; /* ".so." */
#pragma unroll
    for (u32 i = 1; i < 8; i++)
        found |= (u32)(before >> 8 * i | last << (64 - 8 * i)) == 0x2e6f732e;
    return found;
}
INLINE bool may_be_checkpoint(u64 last) {
    return ENDS(".pt") || ENDS(".pth") || ENDS(".ckpt") || ENDS(".tar") || ENDS(".bin") || ENDS("tensors") ||
           ENDS("distcp") || ENDS(".h5") || ENDS(".hdf5") || ENDS(".keras") || ENDS(".npz") || ENDS("dparams") ||
           ENDS("msgpack") || ENDS(".pkl");
}
/* Where in the path that follows which comes after "site-packages/" or "dist-packages/"; 0: it has neither. */
INLINE u32 below_packages(struct start *s) {
#pragma nounroll
    for (u32 i = 0; i < START_PATH_SIZE - 4; i++) {
        u32 four = *(u32 *)(s->path + i);
        if (four == 0x6361702d)             /* "-pac" */
            return i + sizeof("-packages"); /* and the slash */
        if (!(u8)four)
            break;
    }
    return 0;
}
/* Where the system and the packages of the interpreter lie: what is read there is no data set. */
INLINE bool is_systems(struct start *s) {
    u64 head = *(u64 *)s->path;
    return (u32)head == 0x7273752f || (u32)head == 0x6374652f || (u32)head == 0x7379732f || (u32)head == 0x7665642f ||
           (u32)head == 0x62696c2f ||
           (head & 0xffffffffffull) == 0x636f72702full || /* /usr /etc /sys /dev /lib /proc */
           below_packages(s);
}
/* The framework whose training loop a file of code is: the hash of its path below site-packages, up to the first dot,
 * decides. By words and without branches: the verifier takes a second for a loop over the bytes. */
INLINE u32 loop_of(struct start *s) {
    u64 words[LOOP_WORDS] = {}, hash = LOOP_SEED, before = ~0ull;
    u32 at = below_packages(s);
    if (!at || read_kernel(words, sizeof(words), s->path + at))
        return 0;
#pragma unroll
    for (u32 i = 0; i < LOOP_WORDS; i++) {
        u64 dots = words[i] ^ 0x2e2e2e2e2e2e2e2eull; /* their bytes are 0 */
        dots = (dots - 0x0101010101010101ull) & ~dots & 0x8080808080808080ull;
        u64 first = dots & -dots;
        hash = (hash ^ (words[i] & before & ((first >> 7) - 1))) * LOOP_PRIME;
        before &= ((dots | -dots) >> 63) - 1;
    }
/* by branches: as one expression they take more of the stack than there is */
#define LOOP(file, owner)                                                                                              \
    if (hash == file)                                                                                                  \
        return 1u << owner;
    LOOP_FILES
#undef LOOP
    return 0;
}
INLINE void note_file(struct start *s, struct target *t, s32 fd, u64 now) {
    u32 place = s->files_used;
    asm volatile("" : "+r"(place));
    struct start_file *f = &s->files[place & (START_FILES - 1)];
    f->opened = f->last = now;
    f->bytes = 0;
    f->ino = t->ino;
    f->dev = t->dev;
    f->fd = fd;
    read_kernel(f->path, START_PATH_SIZE, s->path);
    s->files_used++;
}
/* Of one that is longer than its place the end, which has the file's name. Returns the length of the whole, with the
 * zero behind it. */
INLINE long read_path(struct start *s, u64 path) {
    long length = read_user_string(s->path, START_PATH_SIZE, (void *)path);
    if (length < START_PATH_SIZE)
        return length;
    long more = read_user_string(s->path, START_PATH_SIZE, (void *)(path + START_PATH_SIZE - 1));
    if (more < 1)
        return more;
    length = START_PATH_SIZE - 1 + more;
    read_user_string(s->path, START_PATH_SIZE, (void *)(path + length - START_PATH_SIZE));
    return length;
}
int on_start_open(struct call_end *e) {
    struct start *s = e->result >= 0 ? start_of_caller() : 0;
    if (!s)
        return 0;
    u64 path = argument_of(CALL_ARGUMENT_2_OFFSET), tail[2] = {};
    long length = read_path(s, path);
    if (length <= 1 || read_user(tail, sizeof(tail), (void *)(path + length - 1 - sizeof(tail))))
        return 0;
    u64 last = tail[1], now = bpf_ktime_get_ns();
    struct start_file *open = latest_file(s);
    if (open && open->fd == e->result)
        open->fd = -1; /* it was closed */
    if (s->fd == e->result)
        s->fd = -1;
    if (is_library(tail[0], last)) {
        note_open(s, START_LIBRARY, now);
        return 0;
    }
    if (ENDS(".py") || ENDS(".pyc")) {
        note_open(s, START_CODE, now);
        s->loops |= loop_of(s);
        return 0;
    }
    struct target t = {};
    if (is_systems(s) || !resolve(e->result, &t))
        return 0;
    u64 size = 0;
    if (is_regular(&t))
        READ(size, (void *)t.inode, OFFSET_INODE_SIZE);
    else if ((t.mode & 0170000) != 0040000)
        return 0;
    bool large = size >= LARGE || (size >= LEAST_RESTORED && may_be_checkpoint(last));
    if (large && s->files_used < START_FILES)
        note_file(s, &t, e->result, now);
    note_open(s, START_DATA, now);
    s->fd = e->result;
    return 0;
}
/* Reads of directories and of what is known of files: they go on with what was opened. */
int on_start_look(struct call_end *e) {
    struct start *s = start_of_caller();
    struct start_span *last = s ? latest_span(s) : 0;
    if (!last)
        return 0;
    u64 now = bpf_ktime_get_ns();
    if (now - last->end < TOGETHER_NS)
        last->end = now;
    return 0;
}
/* A read of the main thread ended. Data that is read in pieces is worked on between them. */
INLINE void note_start_read(s64 result) {
    struct start *s = start_of_caller();
    struct start_span *last = s ? latest_span(s) : 0;
    if (!last)
        return;
    u64 now = bpf_ktime_get_ns();
    s32 fd = argument_of(CALL_ARGUMENT_OFFSET);
    if ((last->kind == START_DATA && s->fd == fd) || now - last->end < TOGETHER_NS)
        last->end = now;
    struct start_file *f = latest_file(s);
    if (!f || f->fd != fd)
        return;
    f->bytes += result;
    f->last = now;
}
