/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is behind a descriptor of the current process, by walking task->files as the kernel does. */
struct target {
    u64 ino, magic, inode, sb;
    u32 dev, generation, links, rdev;
    void *dentry;
    u32 opened; /* for what: FMODE_* */
    u16 mode;
};
/* 1: /dev/shm of host and containers, where opening a file is not told; 2: memfd, whose files go nowhere. */
BPF_HASH(skipped_devices, u32, u8, 256);

INLINE void *file_of(void *task, s32 fd) { /* 0: nothing */
    void *file = 0, *files = FOLLOW(void *, task, OFFSET_TASK_FILES);
    void *table = files ? FOLLOW(void *, files, OFFSET_FILES_TABLE) : 0;
    if (!table || fd < 0 || (u32)fd >= FOLLOW(u32, table, OFFSET_TABLE_MAX))
        return 0;
    char *place = FOLLOW(char *, table, OFFSET_TABLE_FD) + 8ull * (u32)fd;
#if FUNCTION_CAST
    file = FOLLOW(void *, cast(place, TYPE_LIST_HEAD), 0); /* a structure that begins with a pointer */
    return file ? cast(file, TYPE_FILE) : 0;
#endif
    READ(file, place, 0);
    return file;
}
INLINE void *file_behind(s32 fd) {
    return file_of(current_task(), fd);
}
INLINE bool describe(void *file, void *inode, struct target *t) {
    t->ino = 0;
    t->mode = 0;
    if (!inode || PICK(t->mode, inode, OFFSET_INODE_MODE))
        return false;
    PICK(t->ino, inode, OFFSET_INODE_INO);
    void *sb = 0;
    PICK(sb, inode, OFFSET_INODE_SB);
    PICK(t->dev, sb, OFFSET_SB_DEV);
    PICK(t->dentry, file, OFFSET_FILE_DENTRY);
    PICK(t->opened, file, OFFSET_FILE_MODE);
    t->sb = (u64)sb;
    t->inode = (u64)inode;
    return true;
}
INLINE void *inode_of(void *file) {
    void *inode = 0;
    if (file)
        PICK(inode, file, OFFSET_FILE_INODE);
    return inode;
}
INLINE bool resolve(s32 fd, struct target *t) {
    void *file = file_behind(fd);
    return describe(file, inode_of(file), t);
}
INLINE bool is_socket(void *inode) {
    u16 mode = 0;
    PICK(mode, inode, OFFSET_INODE_MODE);
    return (mode & 0170000) == 0140000;
}
INLINE bool is_regular(struct target *t) {
    return (t->mode & 0170000) == 0100000;
}
INLINE bool resolve_regular(s32 fd, struct target *t) { /* false: it is none, of which no more is read */
    void *file = file_behind(fd), *inode = inode_of(file);
    t->mode = 0;
    return inode && !PICK(t->mode, inode, OFFSET_INODE_MODE) && is_regular(t) && describe(file, inode, t);
}
INLINE bool is_writable(struct target *t) {
    return t->opened & 2; /* FMODE_WRITE */
}
/* torch_PID_…, of which a loader makes hundreds a second, and semaphores: allocated, a few bytes written, mapped. */
INLINE bool is_mapped_only(struct target *t) {
    void *name = 0;
    u64 text = 0;
    READ(name, t->dentry, OFFSET_DENTRY_NAME);
    read_kernel(&text, 6, name);
    return text == 0x5f6863726f74ull || (u32)text == 0x2e6d6573; /* "torch_", "sem." */
}
/* A file whose life is told: on a file system that keeps data. On a shared memory mount only what is written to, as a
 * checkpoint on its way elsewhere is. */
INLINE bool is_told(struct target *t, bool written) {
    u64 magic = 0;
    if (!is_regular(t))
        return false;
    u8 *skipped = skipped_devices.lookup(&t->dev);
    if (skipped && (*skipped == 2 || !written || is_mapped_only(t)))
        return false;
    READ(magic, (void *)t->sb, OFFSET_SB_MAGIC);
    switch (magic) {
    case 0x9fa0:     /* proc */
    case 0x62656572: /* sysfs */
    case 0x27e0eb:   /* cgroup */
    case 0x63677270: /* cgroup2 */
    case 0x64626720: /* debugfs */
    case 0x74726163: /* tracefs */
    case 0xcafe4a11: /* bpf */
    case 0x958458f6: /* hugetlbfs */
    case 0x73636673: /* securityfs */
        return false;
    }
    READ(t->generation, (void *)t->inode, OFFSET_INODE_GENERATION);
    READ(t->links, (void *)t->inode, OFFSET_INODE_LINKS);
    return true;
}
INLINE u8 leaf_of_device(struct target *t, bool writes) {
    void *name = 0;
    u64 text = 0;
    READ(t->rdev, (void *)t->inode, OFFSET_INODE_RDEV);
    u32 major = t->rdev >> 20;
    if (major == 195)
        return LEAF_GPU; /* nvidia0, nvidiactl; nvidia-uvm has no fixed number */
    READ(name, t->dentry, OFFSET_DENTRY_NAME);
    read_kernel(&text, 6, name);
    if (text == 0x61696469766eull)
        return LEAF_GPU; /* "nvidia" */
    return writes && (major == 4 || major == 5 || (major >= 136 && major <= 143)) ? LEAF_STREAM_OUT : LEAF_DEVICE;
}
/* Two ends without a name, as socketpair(2) makes them: a pipe in both directions, which only relatives can share
 * (multiprocessing.Pipe). */
INLINE bool is_pair(s32 fd) {
    void *file = file_behind(fd), *socket = 0, *sock = 0, *peer = 0, *name = 0, *its_name = 0;
    u16 family = 0;
    if (!OFFSET_UNIX_PEER || !file || READ(socket, file, OFFSET_FILE_DATA) || READ(sock, socket, OFFSET_SOCKET_SOCK))
        return false;
    READ(family, sock, OFFSET_SOCK_FAMILY);
    if (family != 1) /* AF_UNIX */
        return false;
    READ(peer, sock, OFFSET_UNIX_PEER);
    READ(name, sock, OFFSET_UNIX_ADDRESS);
    return peer && !name && !READ(its_name, peer, OFFSET_UNIX_ADDRESS) && !its_name;
}
/* A DataLoader's worker, which is asked through a pipe: whatever else it waits for is not its queue. */
INLINE bool is_loaders_worker(void) {
    u64 name[2] = {};
    bpf_get_current_comm(name, sizeof(name));
    return name[0] == 0x5f617461645f7470ull; /* "pt_data_" */
}
/* The leaf of a thread blocked in a call of this kind on what resolve() found. */
INLINE u8 leaf_of_target(struct target *t, u8 kind) {
    bool writes = kind == CALL_WRITE || kind == CALL_SYNC;
    switch (t->mode & 0170000) {
    case 0010000:
        return writes ? LEAF_STREAM_OUT : LEAF_PIPE_READ;
    case 0020000:
        return leaf_of_device(t, writes);
    case 0140000:
        return LEAF_SOCKET;
    case 0040000:
        return kind == CALL_SYNC ? LEAF_FILE_SYNC : LEAF_FILE_READ;
    case 0100000:
        break;
    default:
        return LEAF_OTHER;
    }
    switch (kind) {
    case CALL_WRITE:
    case CALL_SUBMIT:
        return LEAF_FILE_WRITE;
    case CALL_SYNC:
        return LEAF_FILE_SYNC;
    default:
        return LEAF_FILE_READ;
    }
}
