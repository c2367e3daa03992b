/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
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

#define AGAIN_NS 100000000ull

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
/* error: as errno, 0 for a message whose descriptors were cut off. fd: what it failed on, -1: nothing. */
INLINE void tell_failure(s32 number, s32 error, s32 fd, u64 path) {
    struct failure_key key = {};
    key.tgid = this_process();
    key.error = error;
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
    if (n->told && now - n->told < AGAIN_NS)
        return;
    struct failure_message *m = ring.ringbuf_reserve(sizeof(*m));
    if (!m) {
        count_lost(LOST_FAILURE);
        return;
    }
    n->told = now;
    struct target t = {};
    void *sb = 0;
    bool known = fd >= 0 && resolve(fd, &t);
    m->message = MESSAGE_FAILURE;
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
    ring.ringbuf_submit(m, BPF_RB_FORCE_WAKEUP);
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
