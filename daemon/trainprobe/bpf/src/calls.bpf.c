/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* System calls that move bytes or names: their time on the CPU counts too. Every other call is seen only when it
 * blocks, by sched_switch. Reads are traced for drivers alone, the rest for every thread of a watched process. */
struct call_entry { /* syscalls:sys_enter_*; the number is 32 bits wide and its padding is not cleared */
    u64 common;
    s32 number, padding;
    u64 arguments[6];
};

/* Begin a traced call in the ledger: leaf while blocked, leaf while on the CPU. */
INLINE void begin_call(struct ledger *l, u64 now, s32 number, u8 blocked, u8 running) {
    if (l->run != RUN_ON)
        must_run(l, current_task(), now);
    charge(l, now, l->leaf);
    l->call = number;
    l->call_leaf = blocked;
    l->leaf = l->cpu_leaf = running;
    l->call_ns = 0;
    l->reclaim = 0;
}
INLINE void end_call(struct ledger *l, u64 now) {
    if (l->run != RUN_ON)
        must_run(l, current_task(), now);
    charge(l, now, l->leaf);
    l->gap_mark = *cpu_cell(l);
    l->call = -1;
    l->leaf = on_cpu(l);
}
/* The CPU time since the last write-class call on the same file went into producing its bytes. */
INLINE u64 take_gap(struct ledger *l, u32 dev, u64 ino) {
    if (!ino || l->gap_ino != ino || l->gap_dev != dev)
        return 0;
    u64 gap = *cpu_cell(l) - l->gap_mark;
    if ((s64)gap <= 0)
        return 0;
    *cpu_cell(l) -= gap;
    *cell_of(l, LEAF_FILE_GAP) += gap;
    return gap;
}
/* The next file opened so soon after the last one's call, as by whoever opens a log for every line: that belongs to it.
 */
#define NEXT_FILE_NS 100000
INLINE u64 take_gap_before_open(struct ledger *l) {
    u64 gap = *cpu_cell(l) - l->gap_mark;
    if (gap <= NEXT_FILE_NS)
        return take_gap(l, l->gap_dev, l->gap_ino);
    l->gap_ino = 0;
    return 0;
}
/* What moves no more takes a microsecond; should it block, sched_switch sees what in. A loader makes thirty of these
 * for each batch. The end of a call whose beginning noted nothing looks no further. */
#define SMALL_CALL 1024
/* Whether the end of a call is to be looked at: it failed, or its beginning was noted, which it is no longer. */
INLINE bool ends(u32 tid, struct call_end *e, u8 *level, bool *noted) {
    u8 *begun = calling_of(tid);
    if (!begun)
        return false;
    *noted = *begun;
    if ((e->result >= 0 && !*noted) || !traced(tid, level))
        return false;
    if (*noted)
        *begun = 0;
    return true;
}
/* ---- reads ---- */
int on_read_begin(struct call_entry *e) {
    if ((e->number == CALL_READ_NUMBER || e->number == CALL_PREAD_NUMBER) && e->arguments[2] <= SMALL_CALL)
        return 0;
    u32 tid = this_thread();
    struct ledger *l = ledger_of(tid, LEVEL_FULL);
    if (!l)
        return 0;
    l->ino = 0;
    begin_call(l, bpf_ktime_get_ns(), e->number, LEAF_LATER, LEAF_READ_CPU);
    set_calling(tid);
    return 0;
}
int on_read_end(struct call_end *e) {
    u32 tid = this_thread();
    struct ledger *l = was_calling(tid) ? ledger_of(tid, LEVEL_FULL) : 0;
    bool ours = l && l->call == e->number;
    if (ours)
        end_call(l, bpf_ktime_get_ns());
    if (e->result > SMALL_CALL && !(ours && l->driver)) /* also of who is not traced closely yet */
        note_start_read(e->result);
    return 0;
}

/* ---- writes and syncs ---- */
struct iocb_head { /* struct iocb of linux/aio_abi.h, up to what is needed of it */
    u64 data, key;
    u16 operation, priority;
    u32 file;
    u64 buffer, length;
};
struct submission {
    u64 bytes;
    s32 fd;
    u32 unused;
};
BPF_TABLE("lru_hash", u32, struct submission, submissions, 256); /* by thread */
/* io_submit(ctx, n, iocbs): libaio carries the bytes of some checkpoints. It comes right before on_write_begin, for
 * which the verifier took four times as long with this loop in it. */
int on_submit_begin(struct call_entry *e) {
    u32 tid = this_thread();
    u8 level;
    if (!traced(tid, &level))
        return 0;
    struct submission told = {};
    told.fd = -1;
#pragma nounroll
    for (int i = 0; i < 64; i++) {
        u64 at = 0;
        struct iocb_head iocb = {};
        if (i >= (s64)e->arguments[1] || read_user(&at, 8, (void *)(e->arguments[2] + 8 * i)) ||
            read_user(&iocb, sizeof(iocb), (void *)at))
            break;
        u64 length = iocb.length;
        if (iocb.operation == 8) /* IOCB_CMD_PWRITEV: of a vector the first part is what the known writers use */
            read_user(&length, 8, (void *)(iocb.buffer + 8));
        else if (iocb.operation != 1) /* IOCB_CMD_PWRITE */
            continue;
        told.fd = iocb.file;
        told.bytes += length;
    }
    submissions.update(&tid, &told);
    return 0;
}
INLINE bool is_known(struct known *k, void *inode, u8 kind) {
    if (!inode || k->inode != (u64)inode || k->kind != kind)
        return false;
    /* An inode's address comes back after unlink(2), elsewhere, too. */
#if !FUNCTION_CAST && OFFSET_INODE_INO > OFFSET_INODE_SB && OFFSET_INODE_INO - OFFSET_INODE_SB <= 64
    u64 both[(OFFSET_INODE_INO - OFFSET_INODE_SB) / 8 + 1]; /* one helper's call for both */
    read_kernel(both, sizeof(both), (char *)inode + OFFSET_INODE_SB);
    return both[0] == k->sb && both[sizeof(both) / 8 - 1] == k->key.ino;
#else
    u64 sb = 0, ino = 0;
    PICK(sb, inode, OFFSET_INODE_SB);
    PICK(ino, inode, OFFSET_INODE_INO);
    return ino == k->key.ino && sb == k->sb;
#endif
}
INLINE void keep(struct known *k, struct target *t, bool there, bool told, u8 kind) {
    k->inode = there ? t->inode : 0;
    k->sb = t->sb;
    k->key.tgid = this_process();
    k->key.dev = t->dev;
    k->key.ino = t->ino;
    k->kind = kind;
    k->leaf = there ? leaf_of_target(t, kind) : LEAF_OTHER;
    k->regular = there && is_regular(t);
    k->told = told;
}
/* Not all calls of a family have so many arguments, and the kernel attaches no plain load behind the last. From an
 * address that was computed the verifier takes none either: they are read by a helper from here, or a single one from
 * the registers of the task. */
INLINE u64 *arguments_in(struct call_entry *e) {
    asm volatile("" : "+r"(e));
    return e->arguments;
}
INLINE u64 third_argument(void *task) {
    return FOLLOW(u64, registers_of(task), CALL_ARGUMENT_3_OFFSET);
}
#define TMPFS 0x01021994
/* A worker gives a file in shared memory its size: a batch, or a part of one. Some versions of torch set it by one
 * call, some by two, so what counts is by how much it grows; it takes whole pages. */
INLINE void note_shared(struct target *t, u8 form, struct call_entry *e) {
    u32 tgid = this_process();
    struct ledger *l = find_ledger(tgid); /* of its main thread: another one, which sends batches, may make it */
    u64 a[4];
    read_kernel(a, sizeof(a), arguments_in(e));
    u64 size = 0, magic = 0, wanted = form == FORM_ALLOCATE ? a[2] + a[3] : a[1];
    if (!l || !l->pool || !is_mapped_only(t) || READ(size, (void *)t->inode, OFFSET_INODE_SIZE) || wanted <= size)
        return;
    READ(magic, (void *)t->sb, OFFSET_SB_MAGIC);
    struct pool *p = magic == TMPFS ? pool_in_use(l) : 0;
    if (p)
        __sync_fetch_and_add(&p->shared, (wanted - size + 4095) & ~4095ull);
}
int on_write_begin(struct call_entry *e) {
    void *task = current_task();
    u32 tid = FOLLOW(u32, task, OFFSET_TASK_PID), number = e->number;
    u8 level;
    if (!traced(tid, &level))
        return 0;
    struct call_description *d = kind_of_call(number);
    if (!d)
        return 0;
    u64 submitted = 0;
    s32 fd = e->arguments[0];
    u8 kind = d->kind, form = d->fd_argument;
    if (kind == CALL_SUBMIT) {
        struct submission *told = submissions.lookup(&tid);
        fd = told ? told->fd : -1;
        submitted = told ? told->bytes : 0;
    } else if (form == 2) {
        fd = third_argument(task);
    }
    struct target t;
    void *file = file_of(task, fd), *inode = inode_of(file);
    struct ledger *l = level >= LEVEL_COARSE ? find_ledger(tid) : 0;
    struct call *c = call_of(l, tid);
    bool again = c && form < FORM_TRUNCATE && is_known(&c->known, inode, kind);
    if (!again) {
        if (inode && is_socket(inode))
            return 0; /* seen when it blocks, as sendmsg(2) is: a loader makes some ten of these for each batch */
        __builtin_memset(&t, 0, sizeof(t));
        bool there = describe(file, inode, &t), told = there && is_told(&t, kind == CALL_WRITE);
        if (!c && told)
            c = new_call(tid);
        if (c)
            keep(&c->known, &t, there, told, kind);
        if (there && form >= FORM_TRUNCATE)
            note_shared(&t, form, e);
    }
    if (!c)
        return 0;
    struct known *k = &c->known;
    c->number = c->gap_ns = 0;
    if (!k->told && number == CALL_WRITE_NUMBER && third_argument(task) <= SMALL_CALL)
        return 0; /* to a pipe, mostly */
    u64 now = bpf_ktime_get_ns();
    set_calling(tid);
    if (l) {
        begin_call(l, now, number, k->leaf, k->leaf);
        l->dev = k->key.dev;
        l->ino = k->regular ? k->key.ino : 0;
        if (k->regular)
            c->gap_ns = take_gap(l, k->key.dev, k->key.ino);
    }
    if (!k->told)
        return 0;
    c->key = k->key;
    c->at = now;
    c->number = number + 1;
    c->kind = kind;
    c->fd = fd;
    c->bytes = submitted;
    if (!again)
        use_of(&c->key, &t, now, fd);
    return 0;
}
int on_write_end(struct call_end *e) {
    u32 tid = this_thread();
    u8 level;
    bool noted;
    if (!ends(tid, e, &level, &noted))
        return 0;
    if (NO_SPACE(e->result))
        tell_failure(e->number, -e->result, argument_of(CALL_ARGUMENT_OFFSET), 0);
    if (!noted)
        return 0;
    struct ledger *l = level >= LEVEL_COARSE ? find_ledger(tid) : 0;
    struct call *c = call_of(l, tid);
    bool ours = l && l->call == e->number, flying = c && c->number == e->number + 1;
    u64 now = ours || flying ? bpf_ktime_get_ns() : 0, bytes = 0;
    if (ours)
        end_call(l, now);
    if (!flying)
        return 0;
    c->number = 0;
    if (c->kind == CALL_SUBMIT)
        bytes = e->result > 0 ? c->bytes : 0;
    else if (c->kind == CALL_WRITE && e->result > 0)
        bytes = e->result;
    if (ours) {
        add_to_step(l, c->key.dev, c->key.ino, l->call_ns, c->gap_ns, bytes);
        l->gap_ino = c->key.ino;
        l->gap_dev = c->key.dev;
    }
    struct file_use *u = files.lookup(&c->key);
    if (!u || u->descriptors <= 0)
        c->known.inode = 0; /* it was closed: perhaps it is another file by now */
    if (!u)
        return 0;
    if (u->tid != tid)
        u->shared = 1;
    u64 *spent = c->kind == CALL_SYNC ? &u->sync_ns : &u->write_ns;
    if (u->shared) {
        __sync_fetch_and_add(spent, now - c->at);
        __sync_fetch_and_add(&u->bytes, bytes);
        __sync_fetch_and_add(&u->calls, 1);
    } else { /* a third of what all of this takes */
        *spent += now - c->at;
        u->bytes += bytes;
        u->calls++;
    }
    u->gap_ns += c->gap_ns;
    u->tid = tid;
    if (is_failure(e->result) && !u->error)
        u->error = -e->result;
    c->last = c->key;
    return 0;
}

/* ---- open, close, rename, unlink, dup ---- */
#define AT_HERE     -100  /* AT_FDCWD */
#define OPEN_WRITES 01103 /* O_WRONLY | O_RDWR | O_CREAT | O_TRUNC */
/* Paths are read when the call ends: the kernel has just read them, so they are in memory. */
INLINE void note_paths(struct call *c, u8 form, u64 *a) {
    bool at = form & 1;
    c->directory = at ? (s32)a[0] : AT_HERE;
    c->path = at ? a[1] : a[0];
    c->new_directory = at ? (s32)a[2] : AT_HERE;
    c->new_path = at ? a[3] : a[1];
}
INLINE u32 flags_of_open(u8 form, u64 *a) {
    u64 flags = 0;
    switch (form) {
    case 0:
        return a[1]; /* open */
    case 1:
        return a[2]; /* openat */
    case 2:
        return 01101; /* creat: O_WRONLY | O_CREAT | O_TRUNC */
    default:
        read_user(&flags, 8, (void *)a[2]);
        return flags; /* openat2 */
    }
}
INLINE bool duplicates(u8 kind, u64 *a) {
    return kind == CALL_DUP || (kind == CALL_CONTROL && (a[1] == 0 || a[1] == 1030)); /* F_DUPFD, F_DUPFD_CLOEXEC */
}
/* /dev/shm: every tensor that a worker sends comes and goes there, as torch_PID_… */
INLINE bool in_shared_memory(u64 path, bool of_torch) {
    u64 start[2] = {};
    read_user_string((char *)start, sizeof(start), (void *)path);
    return start[0] == 0x6d68732f7665642full && (u8)start[1] == '/' &&
           (!of_torch || (start[1] >> 8 & 0xffffffffffffull) == 0x5f6863726f74ull);
}
int on_name_begin(struct call_entry *e) {
    u64 id = bpf_get_current_pid_tgid();
    u32 tid = id, tgid = id >> 32, number = e->number;
    u8 level;
    if (!traced(tid, &level))
        return 0;
    /* Nothing that is told can end: so it is with most, and a loader makes some twenty for each batch. */
    if ((number == CALL_CLOSE_NUMBER || number == CALL_CONTROL_NUMBER) && !may_be_writing(tgid))
        return 0;
    struct call_description *d = kind_of_call(number);
    if (!d)
        return 0;
    u8 kind = d->kind, form = d->fd_argument;
    bool closes = kind == CALL_CLOSE || kind == CALL_DUP || kind == CALL_CONTROL;
    struct process *p = closes ? processes.lookup(&tgid) : 0;
    if (closes && (!p || p->writing <= 0))
        return 0;
    u64 a[4] = {};
    read_kernel(a, sizeof(a), arguments_in(e));
    u32 flags = 0;
    bool changes = true; /* something that is told */
    struct target t = {};
    struct file_key key = {};
    key.tgid = tgid;
    if (kind == CALL_OPEN) {
        flags = flags_of_open(form, a);
        changes = flags & OPEN_WRITES;
    } else if (closes) {
        if (kind == CALL_CONTROL && !duplicates(kind, a))
            return 0;
        /* dup2 of a descriptor to itself closes nothing. */
        if (kind == CALL_DUP && form && a[0] == a[1])
            return 0;
        s32 fd = kind == CALL_DUP && form ? a[1] : a[0]; /* dup2 and dup3 close the new descriptor */
        if (kind == CALL_CLOSE) {
            if (!resolve_regular(fd, &t))
                return 0; /* seen when it blocks: sockets, of which a loader closes some for each batch */
            key.dev = t.dev;
            key.ino = t.ino;
            struct file_use *u = files.lookup(&key);
            if (!u || !(is_writable(&t) || is_reader(u, fd)))
                return 0; /* other readers end nothing */
        } else if (kind == CALL_DUP && form && resolve_regular(fd, &t) && is_writable(&t)) {
            key.dev = t.dev;
            key.ino = t.ino;
        }
    }
    u64 path = form & 1 ? a[1] : a[0];
    if (level < LEVEL_FULL && (!changes || (kind == CALL_UNLINK && in_shared_memory(path, false)) ||
                               (kind == CALL_OPEN && in_shared_memory(path, true))))
        return 0;
    u64 now = bpf_ktime_get_ns();
    set_calling(tid);
    struct ledger *l = level >= LEVEL_COARSE ? find_ledger(tid) : 0;
    if (l && kind != CALL_DUP && kind != CALL_CONTROL) {
        l->ino = 0;
        begin_call(l, now, number, changes ? LEAF_FILE_META : LEAF_FILE_READ, changes ? LEAF_FILE_META : LEAF_READ_CPU);
    }
    struct call *c = call_of(l, tid);
    if (!changes) {
        if (c)
            c->number = 0; /* should the end of its last call have been missed */
        return 0;
    }
    if (!c)
        c = new_call(tid);
    if (!c)
        return 0;
    c->at = now;
    c->number = number + 1;
    c->kind = kind;
    c->gap_ns = 0;
    if (l && kind == CALL_CLOSE)
        c->gap_ns = take_gap(l, key.dev, key.ino);
    else if (l && kind == CALL_OPEN)
        c->gap_ns = take_gap_before_open(l);
    c->key = key;
    c->flags = flags;
    c->fd = a[0];
    note_paths(c, form, a);
    return 0;
}
INLINE void tell_name(struct call *c, u32 kind, u64 now, s64 result) {
    struct file_use u = {};
    struct file_key none = {};
    none.tgid = this_process();
    u.opened = c->at;
    u.meta_ns = now - c->at;
    u.error = result < 0 ? -result : 0;
    u.fd = -1;
    struct named_file_message *m = begin_named(kind, now, &none, &u);
    if (!m)
        return;
    m->directory = c->directory;
    m->new_directory = c->new_directory;
    read_user_string(m->path, PATH_SIZE, (void *)c->path);
    if (kind == FILE_RENAMED)
        read_user_string(m->new_path, PATH_SIZE, (void *)c->new_path);
    ring.ringbuf_submit(m, quietly(sizeof(*m)));
}
INLINE void count_descriptor(u32 tgid, struct target *t) { /* one more of a file that is open already */
    struct file_key key = {};
    key.tgid = tgid;
    key.dev = t->dev;
    key.ino = t->ino;
    struct file_use *u = files.lookup(&key);
    if (u)
        u->descriptors++;
}
INLINE bool leaves_no_file(s64 result) { /* EIO ENFILE EMFILE ENOSPC EROFS EDQUOT */
    return result == -5 || result == -23 || result == -24 || result == -28 || result == -30 || result == -122;
}
INLINE u64 path_of_call(u32 number) { /* that has just returned; 0: it has none */
    struct call_description *d = kind_of_call(number);
    if (!d || (d->kind != CALL_OPEN && d->kind != CALL_RENAME && d->kind != CALL_UNLINK))
        return 0;
    return d->fd_argument & 1 ? argument_of(CALL_ARGUMENT_2_OFFSET) : argument_of(CALL_ARGUMENT_OFFSET);
}
int on_name_end(struct call_end *e) {
    u64 id = bpf_get_current_pid_tgid();
    u32 tid = id, tgid = id >> 32;
    u8 level;
    bool noted;
    if (!ends(tid, e, &level, &noted))
        return 0;
    if (NO_DESCRIPTORS(e->result) || NO_SPACE(e->result))
        tell_failure(e->number, -e->result, -1, path_of_call(e->number));
    if (!noted)
        return 0;
    struct ledger *l = level >= LEVEL_COARSE ? find_ledger(tid) : 0;
    struct call *c = call_of(l, tid);
    bool ours = l && l->call == e->number, flying = c && c->number == e->number + 1;
    u64 now = ours || flying ? bpf_ktime_get_ns() : 0;
    if (ours)
        end_call(l, now);
    if (!flying)
        return 0;
    c->number = 0;
    struct target t = {};
    struct file_use *u = 0;
    s32 told = -1;
    u8 kind = c->kind;
    if (kind == CALL_OPEN) {
        if (e->result >= 0 && resolve_regular(e->result, &t) && is_writable(&t) && is_told(&t, false)) {
            c->key.dev = t.dev;
            c->key.ino = t.ino;
            u = open_use(c, &t, now, e->result);
            if (u)
                u->meta_ns += now - c->at;
            c->last = c->key;
        } else if (leaves_no_file(e->result)) {
            told = FILE_CLOSED; /* it was to be written */
        }
    } else if (kind == CALL_RENAME) {
        told = FILE_RENAMED;
    } else if (kind == CALL_UNLINK) {
        told = FILE_UNLINKED;
    } else if (kind == CALL_CLOSE || e->result >= 0) { /* close, or a dup that closed what its new descriptor was */
        u = c->key.ino ? files.lookup(&c->key) : 0;
        if (u && u->descriptors > 0) {
            if (kind == CALL_CLOSE) {
                if (is_reader(u, c->fd))
                    u->reader = 0;
                u->meta_ns += now - c->at;
                u->gap_ns += c->gap_ns;
                u->tid = tid;
                c->last = c->key;
                if (is_failure(e->result) && !u->error)
                    u->error = -e->result;
            }
            close_use(&c->key, u, now);
        }
        if (kind != CALL_CLOSE) {
            if (resolve_regular(e->result, &t) && is_writable(&t))
                count_descriptor(tgid, &t);
            return 0;
        }
    }
    bool renames = kind == CALL_RENAME || (kind == CALL_UNLINK && !e->result && !in_shared_memory(c->path, false));
    if (renames || told == FILE_CLOSED)
        tell_name(c, told, now, e->result);
    if (!ours)
        return 0;
    u32 dev = u ? c->key.dev : renames ? c->last.dev : 0; /* renames are booked on what the thread wrote last */
    u64 ino = u ? c->key.ino : renames ? c->last.ino : 0;
    add_to_step(l, dev, ino, l->call_ns, c->gap_ns, 0);
    l->gap_ino = kind == CALL_OPEN || kind == CALL_CLOSE ? ino : 0;
    l->gap_dev = dev;
    return 0;
}
