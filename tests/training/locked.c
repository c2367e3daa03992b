/* Holds the lock of its memory map for as long as FILE's file system leaves a read unanswered: one thread holds it as a
 * reader, another waits to write, so no further reader gets it. A child that vfork(2) made waits for it in execve(2),
 * and holds the lock of that call. Usage: locked FILE */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, SOON_US = 50000 };

static int memory;
static void *page;

static void *read_page(void *unused) {
    char byte;

    (void)unused;
    return pread(memory, &byte, 1, (off_t)(uintptr_t)page) == 1 ? page : NULL;
}

static void *map_another(void *unused) {
    (void)unused;
    usleep(SOON_US);
    return mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(int argc, char **argv) {
    int file = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    pthread_t reader, writer;

    memory = open("/proc/self/mem", O_RDONLY);
    page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    if (memory < 0 || page == MAP_FAILED || pthread_create(&writer, NULL, map_another, NULL) ||
        pthread_create(&reader, NULL, read_page, NULL))
        return 1;
    usleep(2 * SOON_US);
    if (vfork() == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    pause();
    return 0;
}
