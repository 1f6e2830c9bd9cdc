/* A disk that fails on request: loaded before libc, controlled through a file shared with the test.

   The file is an array of 64-bit numbers, in the order of the enum below and of FIELDS in
   faults.py. Only calls of the process that loads this are changed; the files are real.

   After a failed sync the kernel may drop the pages it could not write, and the next sync succeeds
   without them. This library does the same: it restores the file to its last good sync, and drops
   later writes to all journal files, while every call succeeds. A server that trusts the disk after
   a failure is exposed at its next start. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    SYNCS,          /* syncs so far, of journal files or of all files and directories */
    COUNTS_ALL,     /* whether SYNCS counts all files and directories */
    SYNC_FAILS_AT,  /* the sync with this number returns EIO, once */
    SYNC_DELAY_US,  /* every sync takes at least this long */
    WRITES,         /* writes to journal files so far */
    WRITE_FAILS_AT, /* the write with this number returns EIO, once */
    WRITE_SHORT_AT, /* the write with this number writes only half */
    IS_FULL,        /* no space can be reserved: ENOSPC */
    HAS_FAILED,     /* an EIO was returned */
    SENDS_AFTER,    /* sends over TCP since HAS_FAILED */
    IS_IN_THREAD,   /* whether the failed call was made in another thread than the loop */
    FIELDS
};

static volatile int64_t *shared;

__attribute__((constructor)) static void open_shared(void) {
    const char *path = getenv("YARD_FAULTS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *at = mmap(NULL, FIELDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) shared = at;
    close(fd);
}

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

/* Count a call; return whether it is the one that must fail. */
static int fails(int count, int at) {
    int64_t number = __atomic_add_fetch(&shared[count], 1, __ATOMIC_SEQ_CST);
    if (shared[at] != number) return 0;
    shared[IS_IN_THREAD] = gettid() != getpid();
    shared[HAS_FAILED] = 1;
    errno = EIO;
    return 1;
}

static int is_journal(int fd) {
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    return size > 8 && memcmp(path + size - 8, ".journal", 8) == 0;
}

/* Writes since the last good sync of their file, with the bytes they replaced. Writes that do not
   fit into the table are never undone. */
static struct { int64_t number; ino_t file; off_t offset; ssize_t size; char *before; } unsynced[4096];
static int unsynced_count;
static int64_t last_number;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static ino_t file_of(int fd) {
    struct stat found;
    return fstat(fd, &found) == 0 ? found.st_ino : 0;
}

static ssize_t real_pwrite(int fd, const void *data, size_t size, off_t offset) {
    static ssize_t (*call)(int, const void *, size_t, off_t);
    if (!call) call = (ssize_t(*)(int, const void *, size_t, off_t))real("pwrite");
    return call(fd, data, size, offset);
}

/* Forget the writes to this file up to `number`; undo them first if lost, the newest first. */
static void settle(int fd, int64_t number, int is_lost) {
    ino_t file = file_of(fd);
    pthread_mutex_lock(&mutex);
    for (int i = unsynced_count - 1; i >= 0; i--) {
        if (unsynced[i].file != file || unsynced[i].number > number) continue;
        if (is_lost && real_pwrite(fd, unsynced[i].before, unsynced[i].size, unsynced[i].offset) < 0)
            abort();
        free(unsynced[i].before);
        unsynced[i].file = 0;
    }
    int kept = 0;
    for (int i = 0; i < unsynced_count; i++)
        if (unsynced[i].file != 0) unsynced[kept++] = unsynced[i];
    unsynced_count = kept;
    pthread_mutex_unlock(&mutex);
}

static int sync_with(const char *name, int fd) {
    int (*call)(int) = (int (*)(int))real(name);
    if (!shared) return call(fd);
    int64_t us = shared[SYNC_DELAY_US];
    if (us > 0) {
        struct timespec pause = {us / 1000000, (us % 1000000) * 1000};
        nanosleep(&pause, NULL);
    }
    if (!shared[COUNTS_ALL] && !is_journal(fd)) return call(fd);
    int64_t number = __atomic_load_n(&last_number, __ATOMIC_SEQ_CST);
    if (fails(SYNCS, SYNC_FAILS_AT)) {
        settle(fd, number, 1);
        errno = EIO;
        return -1;
    }
    int result = call(fd);
    settle(fd, number, 0);
    return result;
}

int fdatasync(int fd) { return sync_with("fdatasync", fd); }
int fsync(int fd) { return sync_with("fsync", fd); }

static ssize_t write_at(int fd, const void *data, size_t size, off_t offset) {
    if (!shared || !is_journal(fd)) return real_pwrite(fd, data, size, offset);
    if (shared[HAS_FAILED]) return size;
    if (fails(WRITES, WRITE_FAILS_AT)) return -1;
    if (shared[WRITE_SHORT_AT] == shared[WRITES] && size > 1) size /= 2;
    pthread_mutex_lock(&mutex);
    char *before = unsynced_count < 4096 ? malloc(size) : NULL;
    ssize_t old = before ? pread(fd, before, size, offset) : 0;
    if (old > 0) {
        unsynced[unsynced_count].number = __atomic_add_fetch(&last_number, 1, __ATOMIC_SEQ_CST);
        unsynced[unsynced_count].file = file_of(fd);
        unsynced[unsynced_count].offset = offset;
        unsynced[unsynced_count].before = before;
        unsynced[unsynced_count++].size = old;
    } else {
        free(before);
    }
    pthread_mutex_unlock(&mutex);
    return real_pwrite(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return write_at(fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) {
    return write_at(fd, data, size, offset);
}

static int reserve_with(const char *name, int fd, off_t offset, off_t size) {
    int (*call)(int, off_t, off_t) = (int (*)(int, off_t, off_t))real(name);
    return shared && shared[IS_FULL] ? ENOSPC : call(fd, offset, size);
}

int posix_fallocate(int fd, off_t offset, off_t size) {
    return reserve_with("posix_fallocate", fd, offset, size);
}
int posix_fallocate64(int fd, off_t offset, off_t size) {
    return reserve_with("posix_fallocate64", fd, offset, size);
}

/* Each event loop sends with a different call; all of them are counted. */
static void note_send(int fd) {
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    if (shared && shared[HAS_FAILED] && getsockname(fd, (struct sockaddr *)&name, &size) == 0 &&
        name.ss_family == AF_INET)
        __atomic_add_fetch(&shared[SENDS_AFTER], 1, __ATOMIC_SEQ_CST);
}

ssize_t send(int fd, const void *data, size_t size, int flags) {
    ssize_t (*call)(int, const void *, size_t, int) =
        (ssize_t(*)(int, const void *, size_t, int))real("send");
    note_send(fd);
    return call(fd, data, size, flags);
}

ssize_t write(int fd, const void *data, size_t size) {
    ssize_t (*call)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))real("write");
    note_send(fd);
    return call(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    ssize_t (*call)(int, const struct iovec *, int) =
        (ssize_t(*)(int, const struct iovec *, int))real("writev");
    note_send(fd);
    return call(fd, parts, count);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    ssize_t (*call)(int, const struct msghdr *, int) =
        (ssize_t(*)(int, const struct msghdr *, int))real("sendmsg");
    note_send(fd);
    return call(fd, message, flags);
}
