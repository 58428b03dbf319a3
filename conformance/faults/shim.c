// Loaded in front of the C library: counts what a process does to the files below FAULT_PATH, and
// makes the operation number FAULT_AT go wrong. What was written and not yet synced is remembered,
// so that a loss of power can be played: all of that is undone before the process is killed.
//
// FAULT_OPS   write: writes, lengths, creations, renames; sync: fsync and fdatasync; read
// FAULT_KIND  full (ENOSPC), error (EIO; a sync also loses what it should have synced),
//             torn (half is written, then killed), power (all that is not synced is lost, then killed),
//             readonly (EROFS, also of files that are opened to write), hang (a sync does not return as long as the tally says so)
// FAULT_COUNT how many operations go wrong, with full and error
// FAULT_EVERY instead of FAULT_AT and FAULT_COUNT: every so many operations, while the tally says so
// FAULT_FILES what the path of a file must contain for its operations to be counted
// FAULT_THREAD the name that the thread must have
// FAULT_TALLY a file of five 64-bit numbers: writes, syncs and reads so far; whether FAULT_EVERY holds;
//             seconds by which the time of day is wrong

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE, SYNC, READ, SWITCH, CLOCK, TALLIES };

struct undo {
    struct undo *older;
    dev_t dev;
    ino_t ino;
    int fd; // of our own, so that renaming and closing do not matter
    off_t offset, size;
    size_t length;
    char bytes[];
};

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static struct undo *undos;
static const char *root, *kind, *files, *thread;
static long at, count, every;
static int ops;
static volatile long *tally;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void prepare(void) {
    root = getenv("FAULT_PATH");
    kind = getenv("FAULT_KIND") ? getenv("FAULT_KIND") : "";
    at = getenv("FAULT_AT") ? atol(getenv("FAULT_AT")) : 0;
    count = getenv("FAULT_COUNT") ? atol(getenv("FAULT_COUNT")) : 1;
    every = getenv("FAULT_EVERY") ? atol(getenv("FAULT_EVERY")) : 0;
    files = getenv("FAULT_FILES");
    thread = getenv("FAULT_THREAD");
    const char *which = getenv("FAULT_OPS") ? getenv("FAULT_OPS") : "write";
    ops = !strcmp(which, "sync") ? SYNC : !strcmp(which, "read") ? READ : WRITE;
    const char *name = getenv("FAULT_TALLY");
    int fd = name ? REAL(open64)(name, O_RDWR | O_CREAT, 0600) : -1;
    if (fd >= 0 && REAL(ftruncate64)(fd, TALLIES * 8) == 0)
        tally = mmap(NULL, TALLIES * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!tally || tally == MAP_FAILED || !root) {
        root = NULL;
        tally = NULL;
    }
}

static int below(const char *path) {
    return root && path && !strncmp(path, root, strlen(root)) && (!files || strstr(path, files));
}

static int ours(int fd) {
    if (!root) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

static void remember(int fd, off_t offset, size_t length) {
    struct stat now;
    if (fstat(fd, &now) || !S_ISREG(now.st_mode)) return;
    if (offset >= now.st_size) length = 0;
    else if (offset + (off_t)length > now.st_size) length = now.st_size - offset;
    struct undo *undo = malloc(sizeof *undo + length);
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    *undo = (struct undo){undos, now.st_dev, now.st_ino, -1, offset, now.st_size, length};
    for (struct undo *old = undos; old && undo->fd < 0; old = old->older)
        if (old->dev == now.st_dev && old->ino == now.st_ino) undo->fd = old->fd;
    if (undo->fd < 0) undo->fd = REAL(open64)(link, O_RDWR | O_CLOEXEC);
    if (length && pread(undo->fd, undo->bytes, length, offset) != (ssize_t)length) abort();
    undos = undo;
}

static int same(const struct undo *undo, const struct stat *file) {
    return !file || (undo->dev == file->st_dev && undo->ino == file->st_ino);
}

// Undoes (or, with `keep`, forgets) what was not synced of a file, or of all of them.
static void settle(const struct stat *file, int keep) {
    int own = -1;
    for (struct undo **next = &undos; *next;) {
        struct undo *undo = *next;
        if (!same(undo, file)) {
            next = &undo->older;
            continue;
        }
        if (!keep) {
            if (undo->length) (void)!REAL(pwrite64)(undo->fd, undo->bytes, undo->length, undo->offset);
            (void)!REAL(ftruncate64)(undo->fd, undo->size);
        }
        *next = undo->older;
        own = undo->fd;
        free(undo);
    }
    if (file && own >= 0) close(own);
}

static int of_thread(void) {
    char name[16] = "";
    return !thread || (!pthread_getname_np(pthread_self(), name, sizeof name) && !strcmp(name, thread));
}

// Whether this operation is to go wrong; does not return where the process dies of it.
static int wrong(int op, int fd, const void *bytes, size_t length, off_t offset) {
    if (!of_thread()) return 0;
    long number = __atomic_add_fetch(&tally[op], 1, __ATOMIC_SEQ_CST);
    if (op != ops || !strcmp(kind, "hang")) return 0;
    if (every ? !tally[SWITCH] || number % every : !at || number < at || number >= at + count) return 0;
    if (!strcmp(kind, "torn")) {
        if (bytes) (void)!REAL(pwrite64)(fd, bytes, length / 2, offset);
        kill(getpid(), SIGKILL);
    }
    if (!strcmp(kind, "power")) {
        settle(NULL, 0);
        kill(getpid(), SIGKILL);
    }
    errno = !strcmp(kind, "full") ? ENOSPC : !strcmp(kind, "readonly") ? EROFS : EIO;
    return 1;
}

static off_t position(int fd) {
    if (fcntl(fd, F_GETFL) & O_APPEND) {
        struct stat now;
        return fstat(fd, &now) ? 0 : now.st_size;
    }
    return lseek(fd, 0, SEEK_CUR);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    if (!ours(fd)) return REAL(write)(fd, bytes, length);
    pthread_mutex_lock(&turn);
    off_t offset = position(fd);
    ssize_t done = -1;
    if (!wrong(WRITE, fd, bytes, length, offset)) {
        remember(fd, offset, length);
        done = REAL(write)(fd, bytes, length);
    }
    pthread_mutex_unlock(&turn);
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int number) {
    if (!ours(fd)) return REAL(writev)(fd, parts, number);
    pthread_mutex_lock(&turn);
    size_t length = 0;
    for (int part = 0; part < number; part++) length += parts[part].iov_len;
    off_t offset = position(fd);
    ssize_t done = -1;
    if (!wrong(WRITE, fd, parts[0].iov_base, parts[0].iov_len, offset)) {
        remember(fd, offset, length);
        done = REAL(writev)(fd, parts, number);
    }
    pthread_mutex_unlock(&turn);
    return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    if (!ours(fd)) return REAL(pwrite64)(fd, bytes, length, offset);
    pthread_mutex_lock(&turn);
    ssize_t done = -1;
    if (!wrong(WRITE, fd, bytes, length, offset)) {
        remember(fd, offset, length);
        done = REAL(pwrite64)(fd, bytes, length, offset);
    }
    pthread_mutex_unlock(&turn);
    return done;
}

ssize_t read(int fd, void *bytes, size_t length) {
    if (ops == READ && ours(fd) && wrong(READ, fd, NULL, 0, 0)) return -1;
    return REAL(read)(fd, bytes, length);
}

ssize_t pread64(int fd, void *bytes, size_t length, off64_t offset) {
    if (ops == READ && ours(fd) && wrong(READ, fd, NULL, 0, 0)) return -1;
    return REAL(pread64)(fd, bytes, length, offset);
}

int ftruncate64(int fd, off64_t size) {
    if (!ours(fd)) return REAL(ftruncate64)(fd, size);
    pthread_mutex_lock(&turn);
    int done = -1;
    if (!wrong(WRITE, fd, NULL, 0, 0)) {
        struct stat now;
        if (!fstat(fd, &now)) remember(fd, size < now.st_size ? size : now.st_size, now.st_size);
        done = REAL(ftruncate64)(fd, size);
    }
    pthread_mutex_unlock(&turn);
    return done;
}

int rename(const char *from, const char *to) {
    if (!below(from)) return REAL(rename)(from, to);
    pthread_mutex_lock(&turn);
    int done = wrong(WRITE, -1, NULL, 0, 0) ? -1 : REAL(rename)(from, to);
    pthread_mutex_unlock(&turn);
    return done;
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    int read_only = !strcmp(kind, "readonly") && (flags & O_ACCMODE) != O_RDONLY;
    if (!(flags & (O_CREAT | O_TRUNC) || read_only) || !below(path)) return REAL(open64)(path, flags, mode);
    pthread_mutex_lock(&turn);
    int done = -1;
    if ((!read_only && access(path, F_OK) == 0) || !wrong(WRITE, -1, NULL, 0, 0)) done = REAL(open64)(path, flags, mode);
    pthread_mutex_unlock(&turn);
    return done;
}

static int sync_file(int fd, int (*real)(int)) {
    if (!ours(fd)) return real(fd);
    // Only this sync: who holds `turn` holds all others up.
    while (ops == SYNC && !strcmp(kind, "hang") && tally[SWITCH]) usleep(2000);
    pthread_mutex_lock(&turn);
    struct stat file;
    int known = !fstat(fd, &file), done = -1;
    if (wrong(SYNC, fd, NULL, 0, 0)) {
        if (known) settle(&file, 0);
        errno = EIO;
    } else {
        done = real(fd);
        if (known && !done) settle(&file, 1);
    }
    pthread_mutex_unlock(&turn);
    return done;
}

int fsync(int fd) { return sync_file(fd, REAL(fsync)); }
int fdatasync(int fd) { return sync_file(fd, REAL(fdatasync)); }

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = REAL(clock_gettime);
    int done = real(clock, time);
    if (!done && clock == CLOCK_REALTIME && tally) time->tv_sec += tally[CLOCK];
    return done;
}
