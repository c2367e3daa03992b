/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which calls of watched processes fail for want of descriptors, space, memory for threads? Only ends are seen, and of
 * those only the failed ones cost anything. A process that fails in a loop is told of ten times a second, with counts.
 */
struct call_end { /* syscalls:sys_exit_* */
    u64 common;
    s32 number, padding;
    s64 result;
};
INLINE bool traced(u32 tid, u8 *level) {
    u8 *byte = level_of(tid);
    *level = byte ? *byte : 0;
    return *level && !(*level & QUIET);
}

#define AGAIN_NS     100000000ull
#define GPU_AGAIN_NS 5000000ull /* a refusal that ends the training may follow one that was healed */

struct failure_key {
    u32 tgid;
    s32 error;
};
struct failure_count {
    u64 count, told;
};
BPF_TABLE("lru_hash", struct failure_key, struct failure_count, failures, 1024);

#define NO_DESCRIPTORS(result) ((result) == -23 || (result) == -24)  /* ENFILE EMFILE */
#define NO_SPACE(result)       ((result) == -28 || (result) == -122) /* ENOSPC EDQUOT */

INLINE u64 argument_of(u64 offset) {
    return FOLLOW(u64, registers_of(current_task()), offset);
}
/* error: as errno, 0 for a message whose descriptors were cut off. fd: what it failed on, -1: nothing; of a look, the
 * directory that its path begins at. */
INLINE void tell_call(u32 message, s32 number, s32 error, s32 fd, u64 path) {
    struct failure_key key = {};
    key.tgid = this_process();
    key.error = message == MESSAGE_FAILURE ? error : -1;
    u64 now = bpf_ktime_get_ns();
    struct failure_count *n = failures.lookup(&key);
    if (!n) {
        struct failure_count none = {};
        failures.update(&key, &none);
        n = failures.lookup(&key);
        if (!n)
            return;
    }
    __sync_fetch_and_add(&n->count, 1); /* its value is not to be had from the LLVM of BCC 0.18 */
    if (n->told && now - n->told < (number == CALL_GPU_ALLOCATE ? GPU_AGAIN_NS : AGAIN_NS))
        return;
    struct failure_message *m = ring.ringbuf_reserve(sizeof(*m));
    if (!m) {
        count_lost(LOST_FAILURE);
        return;
    }
    n->told = now;
    struct target t = {};
    void *sb = 0;
    bool known = message == MESSAGE_FAILURE && fd >= 0 && resolve(fd, &t);
    m->message = message;
    m->number = number;
    m->at = now;
    m->tgid = key.tgid;
    m->tid = this_thread();
    m->error = error;
    m->fd = fd;
    m->count = n->count;
    m->magic = 0;
    m->ino = known ? t.ino : 0;
    m->dev = known ? t.dev : 0;
    m->unused = 0;
    if (known && !READ(sb, (void *)t.inode, OFFSET_INODE_SB))
        READ(m->magic, sb, OFFSET_SB_MAGIC);
    bpf_get_current_comm(m->comm, sizeof(m->comm));
    m->path[0] = 0;
    if (path)
        read_user_string(m->path, PATH_SIZE, (void *)path);
    ring.ringbuf_submit(m, message == MESSAGE_FAILURE ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}
INLINE void tell_failure(s32 number, s32 error, s32 fd, u64 path) {
    tell_call(MESSAGE_FAILURE, number, error, fd, path);
}
int on_maker_end(struct call_end *e) { /* socket, accept, pipe, ...: calls that make descriptors and nothing else */
    u8 level;
    if (NO_DESCRIPTORS(e->result) && traced(this_thread(), &level))
        tell_failure(e->number, -e->result, -1, 0);
    return 0;
}
#define MESSAGE_FLAGS 48 /* of struct user_msghdr */
#define CUT_OFF       8  /* MSG_CTRUNC: no descriptor was free for what the message carried, or no room in its buffer */
int on_receive_end(struct call_end *e) {
    u8 level;
    u32 flags = 0;
    if (!traced(this_thread(), &level))
        return 0;
    if (e->result >= 0 && !read_user(&flags, 4, (void *)(argument_of(CALL_ARGUMENT_2_OFFSET) + MESSAGE_FLAGS)) &&
        flags & CUT_OFF)
        tell_failure(e->number, 0, -1, 0);
    return 0;
}
int on_clone_end(struct call_end *e) {
    u8 level;
    if ((e->result == -11 || e->result == -12) && traced(this_thread(), &level)) /* EAGAIN ENOMEM */
        tell_failure(e->number, -e->result, -1, 0);
    return 0;
}
/* At which file does a late driver that sleeps look again and again? Attached only meanwhile. Of calls that make a file
 * those count that find it there. */
int on_look_end(struct call_end *e) {
    u32 tid = this_thread();
    u8 *level = level_of(tid);
    struct call_description *d = level && (*level & ~QUIET) >= LEVEL_FULL ? kind_of_call(e->number) : 0;
    if (!d || (d->kind != CALL_LOOKUP && e->result != -17)) /* EEXIST */
        return 0;
    bool at = d->fd_argument & 1;
    u64 first = argument_of(CALL_ARGUMENT_OFFSET);
    tell_call(MESSAGE_LOOK, e->number, e->result < 0 ? -e->result : 0, at ? (s32)first : -100, /* AT_FDCWD */
              at ? argument_of(CALL_ARGUMENT_2_OFFSET) : first);
    return 0;
}
