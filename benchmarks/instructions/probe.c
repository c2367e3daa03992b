/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the instructions of one kind of call by the processor's own clock, which under qemu -icount shift=0 counts
 * nothing else. `probe LIBTORCH steps|still NAME...`: answers each line "measure" with a line "KIND INSTRUCTIONS" for
 * every kind and then "done"; meanwhile, with `steps`, it makes one step of a training each 50 ms. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BATCHES 21
#define MOST    100
#define LINE    64

static void (*make_step)(void);
static void (*record)(void *, void *), (*record_end)(void *, void *);
static int to_null, from_zero, to_file;
static char line[LINE], file[] = "/tmp/probe-file";
static char *pages;
static volatile int turn, passing;
static pthread_t partner;

static inline unsigned long ticks(void) {
    unsigned low, high;
    __asm__ volatile("lfence; rdtsc" : "=a"(low), "=d"(high)::"memory");
    return (unsigned long)high << 32 | low;
}
static inline long call(long number, long a, long b, long c, long d) {
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
}

static void do_getppid(void) { call(SYS_getppid, 0, 0, 0, 0); }
static void do_write_null(void) { call(SYS_write, to_null, (long)line, LINE, 0); }
static void do_write_file(void) { call(SYS_write, to_file, (long)line, LINE, 0); }
static void do_pwrite(void) { call(SYS_pwrite64, to_file, (long)line, LINE, 0); }
static void do_read(void) { call(SYS_read, from_zero, (long)line, LINE, 0); }
static void do_open_close(void) { call(SYS_close, call(SYS_open, (long)file, O_RDONLY, 0, 0), 0, 0, 0); }
static void do_page_fault(void) {
    static int at;
    pages[(at++ % MOST) * 4096] = 1;
}
static void do_mark(void) {
    const char *name = "aten::add";
    record(0, &name);
    record_end(0, 0);
}
/* Up to 32 steps are told together: a batch has whole numbers of those. */
static void do_step(void) { make_step(); }
static void do_fork(void) {
    pid_t child = fork();
    if (!child)
        call(SYS_exit_group, 0, 0, 0, 0);
    waitpid(child, 0, 0);
}
static void do_exec(void) {
    static char program[] = "/tmp/instructions/true"; /* static: nothing else is read from a disk */
    char *arguments[] = {"true", 0}, *none[] = {0};
    pid_t child = vfork();
    if (!child) {
        execve(program, arguments, none);
        _exit(1);
    }
    waitpid(child, 0, 0);
}
/* The other thread: it answers a wake-up by one, or gives way whenever it has the processor. */
static void *be_partner(void *unused) {
    (void)unused;
    while (turn >= 0) {
        if (passing)
            sched_yield();
        else if (turn == 0)
            call(SYS_futex, (long)&turn, FUTEX_WAIT_PRIVATE, 0, 0);
        else {
            turn = 0;
            call(SYS_futex, (long)&turn, FUTEX_WAKE_PRIVATE, 1, 0);
        }
    }
    return 0;
}
static void do_futex(void) {
    turn = 1;
    call(SYS_futex, (long)&turn, FUTEX_WAKE_PRIVATE, 1, 0);
    while (turn == 1)
        call(SYS_futex, (long)&turn, FUTEX_WAIT_PRIVATE, 1, 0);
}
static void do_switch(void) { call(SYS_sched_yield, 0, 0, 0, 0); }

static void before_file(void) { lseek(to_file, 0, SEEK_SET); }
static void before_pages(void) { madvise(pages, MOST * 4096, MADV_DONTNEED); }
static void before_partner(int gives_way) {
    if (partner)
        return;
    turn = 0;
    passing = gives_way;
    pthread_create(&partner, 0, be_partner, 0);
    sched_yield();
}
static void before_futex(void) { before_partner(0); }
static void before_switch(void) { before_partner(1); }

static const struct kind {
    const char *name;
    int calls;
    void (*once)(void), (*before)(void);
} kinds[] = {
    {"getppid", MOST, do_getppid, 0},
    {"write null", MOST, do_write_null, 0},
    {"write tmpfs", MOST, do_write_file, before_file},
    {"pwrite tmpfs", MOST, do_pwrite, 0},
    {"read zero", MOST, do_read, 0},
    {"open+close", MOST, do_open_close, 0},
    {"futex pair", 20, do_futex, before_futex},
    {"switch", 20, do_switch, before_switch},
    {"page fault", MOST, do_page_fault, before_pages},
    {"uprobe pair", MOST, do_mark, 0},
    {"step of marks", 128, do_step, 0},
    {"fork+exit", 5, do_fork, 0},
    {"fork+exec", 5, do_exec, 0},
};

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* Instructions of each; the first batch, which finds nothing prepared, is left out. */
static double measure(const struct kind *k) {
    double found[BATCHES];
    for (int batch = -1; batch < BATCHES; batch++) {
        if (k->before)
            k->before();
        unsigned long began = ticks();
        for (int i = 0; i < k->calls; i++)
            k->once();
        if (batch >= 0)
            found[batch] = (double)(ticks() - began) / k->calls;
    }
    if (partner) {
        turn = -1;
        call(SYS_futex, (long)&turn, FUTEX_WAKE_PRIVATE, 1, 0);
        pthread_join(partner, 0);
        partner = 0;
    }
    qsort(found, BATCHES, sizeof(double), by_size);
    return found[BATCHES / 2];
}
/* Ahead of everybody else, the daemon too: what one call takes is not what comes between. */
static void measure_all(void) {
    struct sched_param first = {.sched_priority = 1}, none = {0};
    sched_setscheduler(0, SCHED_FIFO, &first);
    double found[sizeof(kinds) / sizeof(kinds[0])];
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        found[i] = measure(&kinds[i]);
        usleep(20000); /* whoever else waits may run */
    }
    sched_setscheduler(0, SCHED_OTHER, &none);
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        printf("%s|%.1f\n", kinds[i].name, found[i]);
    puts("done");
    fflush(stdout);
}

int main(int count, char **arguments) {
    void *library = dlopen(arguments[1], RTLD_NOW);
    if (!library || count < 3) {
        fprintf(stderr, "probe: %s\n", dlerror());
        return 2;
    }
    int steps = !strcmp(arguments[2], "steps");
    make_step = (void (*)(void))dlsym(library, "make_step");
    record = (void (*)(void *, void *))dlsym(library, "_ZN5torch8autograd8profiler25record_function_enter_newERKSs");
    record_end = (void (*)(void *, void *))dlsym(library, "_ZN5torch8autograd8profiler24record_function_exit_newERKSs");
    pages = mmap(0, MOST * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(pages, MOST * 4096, MADV_NOHUGEPAGE);
    to_null = open("/dev/null", O_WRONLY);
    from_zero = open("/dev/zero", O_RDONLY);
    to_file = open(file, O_RDWR | O_CREAT, 0600);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    for (char word[64];;) {
        if (!poll(&input, 1, steps ? 50 : -1)) {
            make_step();
            continue;
        }
        if (!fgets(word, sizeof(word), stdin))
            return 0;
        measure_all();
    }
}
