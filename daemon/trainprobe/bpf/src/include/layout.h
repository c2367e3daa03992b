/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The structures that user space sees. `make generated` writes trainprobe/bpf/structures.py from them; the loader
 * passes its sizes as SIZE_*, so a disagreement does not compile. No member may need padding. */
#pragma once
#include <linux/types.h>

/* Nanoseconds, bytes and finished calls of one step on one file. */
struct step_file {
    u64 ino, io_ns, gap_ns, bytes;
    u32 dev, calls;
};

struct file_key {
    u32 tgid, dev;
    u64 ino;
};

/* What a thread's last write-class call went to: the next one mostly goes there too. */
struct known {
    u64 inode, sb; /* the kernel's addresses of it and of its file system; 0: nothing */
    struct file_key key;
    u8 kind; /* of the call */
    u8 leaf;
    u8 regular; /* a file */
    u8 told;    /* its life is told */
    u32 unused;
};

/* The write-class call in flight of a thread, and the file it wrote last. */
struct call {
    struct known known;
    u32 number; /* of the call, and one more; 0: none in flight */
    s32 fd;
    u32 flags; /* of open(2) */
    u8 kind;
    u8 unused[3];
    u64 at;
    struct file_key key;  /* of the descriptor; ino 0: nothing to tell */
    struct file_key last; /* written last: renames and unlinks are booked on it */
    u64 bytes;            /* libaio: what was submitted */
    u64 gap_ns;           /* what the thread computed before it, for the same file */
    u64 path, new_path;
    s32 directory, new_directory;
};

/* An exclusive ledger of a thread's wall time: every event charges the nanoseconds since the last one to the cell
 * (region, leaf) the thread was in, then moves it to another cell. So the cells add up by construction.
 *
 * Most events find the processor's caches full of the training's data. What all of them need lies in two lines of 64
 * bytes, a write's call in the next two: a value begins 56 bytes into its element of the hash map
 * (kernel/bpf/hashtab.c), and the size keeps every element so. */
struct ledger {
    u64 opened; /* the ledger began */

    u64 at;       /* charged up to here */
    u64 since;    /* the present wait, or stay on the CPU, began */
    u64 delay;    /* what the scheduler had counted as its waiting for a CPU when it blocked; 0: not known */
    u64 fault_at; /* a page fault was entered; 0: none, or page faults are not traced */
    u64 call_ns;  /* charged to FILE_WRITE, FILE_SYNC and FILE_META since the call in flight began */
    u64 gap_mark; /* the CPU cell at the end of the last write-class call on gap_file */
    u64 gap_ino;
    u64 ino; /* the file behind the call, or the fault, in flight; 0: none */
    u32 dev;
    u32 gap_dev;

    u32 pool;         /* where a worker process adds its time up for its parent; 0: nowhere */
    s32 call;         /* the traced call in flight; -1: none */
    s32 blocked_call; /* the call it was blocked in when it last left the CPU; -1: none, a page fault */
    s32 blocked_fd;
    u8 region, leaf, run;
    u8 call_leaf;  /* of the call in flight while blocked */
    u8 cpu_leaf;   /* of the call in flight while on the CPU */
    u8 wait_leaf;  /* the last wait's leaf: restart_syscall(2) keeps it */
    u8 why;        /* the leaf of the last switch away from the CPU */
    u8 busy;       /* a uprobe program is changing this ledger: see sched.bpf.c */
    u8 reclaim;    /* in direct reclaim */
    u8 gpu;        /* in a call of CUDA that waits, allocates or frees */
    u8 collecting; /* in Python's garbage collector */
    u8 closing;    /* another thread saw the end of this one's backward */
    u8 fault_file; /* the fault is on a mapped file */
    u8 driver;     /* it made a step or a backward */
    u8 grads_off;  /* gradients are switched off by Python */
    u8 saw_ends;   /* 1: of records, 2: of backwards. Where the symbols are stripped, none ever comes */
    u8 nested;     /* how many regions are open */
    u8 waited_kind, waited_leaf;
    u8 unused;
    u8 regions[4];       /* open regions, outermost first */
    s32 region_depth[4]; /* of record_function, at which each of them began */
    s32 depth;           /* of record_function */
    u32 tid;

    struct call flying;

    u32 tgid;
    u32 steps, fetches, inline_fetches, backwards, major_faults;
    u32 swap_faults, spare;         /* major faults on no file */
    u64 step_at;                    /* the last OPTIMIZER or BACKWARD row */
    u64 row_at;                     /* the last row that ends a step */
    u32 row_fetches, row_backwards; /* counted until then */
    u64 fetch_at;                   /* the fetch that is open began */
    u64 graph_task;                 /* address of the GraphTask of the outermost backward that is open */
    u64 gpu_mark;                   /* LEAF_GPU's cell when the call of CUDA that is open began */
    struct step_file files[STEP_FILES];
    u64 no_grad[LEAVES]; /* the cells of REGION_NO_GRAD when gradients were last switched off */
    /* What a call last blocked on that was no regular file, by the kernel's addresses; 0: nothing. waited_kind: of the
     * call. */
    u64 waited_file, waited_inode;
    u64 acc[CELLS];
};

struct row {
    u32 message, kind;
    u64 at, opened;
    u32 tid, tgid;
    u32 steps, fetches, inline_fetches, backwards, major_faults, region;
    u64 gpu_memory_ns; /* of the process */
    u32 gpu_allocations, gpu_frees;
    u64 collected_ns; /* by the garbage collector in other threads of the process */
    u64 ran_ns;       /* the thread on a processor, as the scheduler has it at its last tick */
    struct step_file files[STEP_FILES];
    u64 acc[CELLS];
    u64 pool[LEAVES];
    u64 shared; /* as in struct pool */
    u64 began;  /* the first of the steps that it ends, where it ends several */
    u32 lengths[HELD_STEPS];
    u32 held;        /* so many; 0: it ends one, or none */
    u32 swap_faults; /* UNTOLD: this kernel does not tell those on files apart */
    char name[NAME_SIZE];
};

/* The row of a driver's last step, which waits to be told with the next ones. */
struct held {
    struct row row;
    u32 fetches, backwards; /* of each step: all are alike */
};

/* A file written by a process, since it was opened or since the last CLOSED that told of it. */
struct file_use {
    u64 opened, told; /* told: when the last event about it went out */
    u64 bytes, calls, write_ns, sync_ns, meta_ns, gap_ns;
    u64 closed;     /* the last descriptor was, then; 0: it is open */
    u32 generation; /* of the inode: an inode number comes back after unlink(2) */
    u32 error;
    u32 tid; /* of the last call */
    s32 fd;
    s16 descriptors; /* open ones for writing, as far as seen, and a reader */
    u8 created, append, small;
    u8 shared;  /* more than one thread of the process wrote it: totals are then added up atomically */
    u16 reader; /* the descriptor, and one more, that synced it though it is not open for writing; 0: none */
};

struct file_message {
    u32 message, kind;
    u64 at;
    struct file_key key;
    u32 tid;
    s32 fd;
    struct file_use use;
};

struct named_file_message {
    struct file_message file;
    s32 directory, new_directory; /* what a relative path starts from: a descriptor or AT_FDCWD */
    u32 walked; /* 1: path holds PARTS components, innermost first, up to the root; 2: there are more */
    u32 unused;
    char path[PATH_SIZE], new_path[PATH_SIZE];
};

struct process_message {
    u32 message, kind;
    u64 at;
    u32 tgid, parent;
    s32 code; /* EXIT: wait status; SIGNAL: si_code */
    s32 signal;
    u32 sender, unused;
    u64 anonymous, shared; /* OOM: kilobytes that the victim held */
    char comm[16], sender_comm[16];
};

struct candidate_message {
    u32 message, why;
    u64 at;
    u32 tgid, unused;
};

/* For so long until then a processor did not run. */
struct standstill_message {
    u32 message, cpu;
    u64 at, ns;
};

/* A call that failed for want of something; count: so many failed so with this error in this process. Or, with message
 * LOOK, one that looked at a file. */
struct failure_message {
    u32 message;
    s32 number;
    u64 at;
    u32 tgid, tid;
    s32 error, fd;
    u64 count, ino, magic;
    u32 dev, unused;
    char comm[16], path[PATH_SIZE];
};

/* What all worker processes of a process charged together, by leaf. */
struct pool {
    u64 ns[LEAVES];
    u64 shared; /* bytes of shared memory that they made */
};

/* A process that is watched, or that may soon be (tentative: a Python that has just started). */
struct process {
    u32 parent;
    u32 pool;                       /* where its child processes add their time up; 0: it has none yet */
    u32 driver;                     /* the thread that ran the last outermost backward */
    s32 writing;                    /* files of it open for writing */
    u32 gpu_allocations, gpu_frees; /* calls of CUDA of all its threads; fill_row() reads both as one u64 */
    u32 tentative;
    u32 gpu_sites;     /* places that these return to, as far as they were told */
    u64 gpu_memory_ns; /* in them */
    s32 drivers;       /* threads that have a ledger because they step */
    u32 unused;
    u64 collecting;   /* a thread without a ledger began to collect garbage; 0: none does */
    u64 collected_ns; /* that such threads took */
};

/* A place in a process that calls of CUDA return to, and user space's word about it. */
struct gpu_site {
    u32 tgid, unused;
    u64 address;
};

/* A call of CUDA that a thread makes again and again: where it returns to, or what it launches. */
struct gpu_caller {
    u32 tgid, tid;
    u64 what;
    u32 least, starting; /* of a clock of bursts: units between two of them, and how many came before the first step */
};
struct gpu_beat {
    u64 count, last;
    u32 kind, unused;
    u32 intervals[BEAT_INTERVALS]; /* between two of them, by half octaves of 1024 ns */
};

struct site_message {
    u32 message, tgid;
    u64 at, address;
};

/* How long a step may take until user space is woken for it. */
struct alarm {
    u64 limit;    /* ns from the row that began it */
    u64 told;     /* when the step began that was told of last */
    u32 ended;    /* a late step that has ended wakes, too */
    u32 together; /* rows of steps in time may wait for one another */
};

/* What the main thread of a process opened before its first step. kind: START_*. */
struct start_span {
    u64 begin, end;
    u32 kind, opens;
};
/* A large file that it opened; last: a read of it ended. */
struct start_file {
    u64 opened, last, bytes, ino;
    u32 dev;
    s32 fd;
    char path[START_PATH_SIZE];
};
struct start {
    u64 began; /* the program */
    u32 spans_used, files_used;
    s32 fd;    /* of the data opened last; -1: it was closed */
    u32 loops; /* frameworks whose training loop it opened, bits by their places in LOOPS */
    struct start_span spans[START_SPANS];
    struct start_file files[START_FILES];
    char path[START_PATH_SIZE]; /* opened last */
};

struct request_key {
    u32 dev, operation;
};
/* Requests of a block device that ended, by duration. */
struct request_use {
    u64 ns, count[REQUEST_BUCKETS];
};

_Static_assert(sizeof(struct ledger) == SIZE_LEDGER, "abi.Ledger");
_Static_assert(sizeof(struct call) == SIZE_CALL, "abi.CallRecord");
_Static_assert(sizeof(struct row) == SIZE_ROW, "abi.Row");
_Static_assert(sizeof(struct held) == SIZE_HELD, "abi.Held");
_Static_assert(sizeof(struct file_use) == SIZE_FILE_USE, "abi.FileUse");
_Static_assert(sizeof(struct file_message) == SIZE_FILE_MESSAGE, "abi.FileMessage");
_Static_assert(sizeof(struct named_file_message) == SIZE_NAMED_FILE_MESSAGE, "abi.NamedFileMessage");
_Static_assert(sizeof(struct process_message) == SIZE_PROCESS_MESSAGE, "abi.ProcessMessage");
_Static_assert(sizeof(struct candidate_message) == SIZE_CANDIDATE_MESSAGE, "abi.CandidateMessage");
_Static_assert(sizeof(struct standstill_message) == SIZE_STANDSTILL_MESSAGE, "abi.StandstillMessage");
_Static_assert(sizeof(struct failure_message) == SIZE_FAILURE_MESSAGE, "abi.FailureMessage");
_Static_assert(sizeof(struct gpu_site) == SIZE_GPU_SITE, "abi.GpuSite");
_Static_assert(sizeof(struct gpu_caller) == SIZE_GPU_CALLER, "abi.GpuCaller");
_Static_assert(sizeof(struct gpu_beat) == SIZE_GPU_BEAT, "abi.GpuBeat");
_Static_assert(sizeof(struct site_message) == SIZE_SITE_MESSAGE, "abi.SiteMessage");
_Static_assert(sizeof(struct alarm) == SIZE_ALARM, "abi.Alarm");
_Static_assert(sizeof(struct pool) == SIZE_POOL, "abi.Pool");
_Static_assert(sizeof(struct request_use) == SIZE_REQUEST_USE, "abi.RequestUse");
_Static_assert(sizeof(struct process) == SIZE_PROCESS, "abi.Process");
_Static_assert(sizeof(struct start) == SIZE_START, "abi.Start");
