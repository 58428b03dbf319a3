// Runs a program and records what it does to the files below a directory, in the order in which its
// system calls end: record ROOT LOG TALLY PROGRAM ARGUMENT...
//
// It stops the program at these calls (a filter and ptrace), so it also sees those that do not go through the
// C library. SIGTERM is handed on; SIGUSR1 kills the program.
//
// LOG    records: operation (1 byte), length of the path and of the second path (2 bytes each), inode, place and
//        length of the data (8 bytes each), then both paths and the data; all in the order of the processor
// TALLY  64-bit numbers: records so far, syncs so far, number of the sync at which failing begins (0: never), how many
//        fail (EIO; they reach no disk)
//
// Operations: c a file is created, m a directory is made, w bytes are written at a place, t a file gets a length
// (the place), r renamed, l linked, u unlinked, d a directory is removed, b a sync begins (the place is the thread),
// s it ended, f it failed, x something happened that is not recorded.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RECORDS, SYNCS, FAIL_AT, FAIL_COUNT, TALLIES };
enum { THREADS = 4096, PATH = 4096, PIECE = 1 << 20 };

typedef unsigned long long ull;

// A system call that a thread is in.
struct call {
    pid_t thread;
    long number;
    ull args[6];
    int created, fails;
    uint64_t inode;
    char path[PATH], second[PATH];
};

struct __attribute__((packed)) head {
    uint8_t operation;
    uint16_t path, second;
    uint64_t inode, place, length;
};

static struct call calls[THREADS];
static const char *root;
static int record_fd;
static volatile uint64_t *tally;
static pid_t child;

static void fail(const char *what) {
    perror(what);
    if (child) kill(child, SIGKILL);
    exit(70);
}

static struct call *call_of(pid_t thread) {
    for (int tried = 0; tried < THREADS; tried++) {
        struct call *call = &calls[(thread + tried) % THREADS];
        if (call->thread == thread || call->thread == 0) {
            call->thread = thread;
            return call;
        }
    }
    fail("too many threads");
    return NULL;
}

static void put(const void *bytes, size_t length) {
    for (size_t done = 0; done < length;) {
        ssize_t more = write(record_fd, (const char *)bytes + done, length - done);
        if (more < 0 && errno != EINTR) fail("writing the record");
        if (more > 0) done += more;
    }
}

static void note(char operation, const char *path, const char *second, uint64_t inode, uint64_t place,
                 const void *data, uint64_t length) {
    struct head head = {operation, strlen(path), strlen(second), inode, place, length};
    put(&head, sizeof head);
    put(path, head.path);
    put(second, head.second);
    put(data, length);
    __atomic_add_fetch(&tally[RECORDS], 1, __ATOMIC_SEQ_CST);
}

static int below(const char *path) { return !strncmp(path, root, strlen(root)); }

static void link_of(pid_t thread, const char *what, long fd, char *path) {
    char link[64];
    if (fd < 0) snprintf(link, sizeof link, "/proc/%d/%s", thread, what);
    else snprintf(link, sizeof link, "/proc/%d/%s/%ld", thread, what, fd);
    ssize_t length = readlink(link, path, PATH - 1);
    path[length < 0 ? 0 : length] = 0;
}

static int ours(pid_t thread, int fd, struct call *call) {
    link_of(thread, "fd", fd, call->path);
    if (!below(call->path)) return 0;
    char link[64];
    struct stat file;
    snprintf(link, sizeof link, "/proc/%d/fd/%d", thread, fd);
    if (stat(link, &file) || !(S_ISREG(file.st_mode) || S_ISDIR(file.st_mode))) return 0;
    call->inode = file.st_ino;
    return 1;
}

static size_t memory(pid_t thread, ull from, void *to, size_t length) {
    struct iovec here = {to, length}, there = {(void *)from, length};
    ssize_t done = process_vm_readv(thread, &here, 1, &there, 1, 0);
    return done < 0 ? 0 : done;
}

// The path of an argument, relative to a directory's descriptor.
static int path_of(pid_t thread, long directory, ull at, char *path) {
    char text[PATH];
    size_t length = 0;
    while (length < PATH - 1) { // not across a page that is not there
        size_t piece = 256 - (at + length) % 256;
        if (piece > PATH - 1 - length) piece = PATH - 1 - length;
        size_t done = memory(thread, at + length, text + length, piece);
        if (done == 0) break;
        length += done;
        if (memchr(text + length - done, 0, done)) break;
    }
    text[length] = 0;
    if (text[0] == '/') {
        strcpy(path, text);
    } else {
        link_of(thread, directory < 0 ? "cwd" : "fd", directory < 0 ? -1 : directory, path);
        size_t end = strlen(path);
        snprintf(path + end, PATH - end, "/%s", text);
    }
    return below(path);
}

static uint64_t inode_of(const char *path) {
    struct stat file;
    return lstat(path, &file) ? 0 : file.st_ino;
}

// Whether the call is to be seen at its end.
static int enter(pid_t thread, struct call *call) {
    const ull *args = call->args;
    struct stat file;
    call->created = call->fails = 0;
    call->path[0] = call->second[0] = 0;
    switch (call->number) {
    case SYS_write: case SYS_writev: case SYS_pwrite64: case SYS_pwritev: case SYS_pwritev2: case SYS_ftruncate:
    case SYS_fallocate: case SYS_sync_file_range:
        return ours(thread, args[0], call);
    case SYS_sendfile:
        return ours(thread, args[0], call);
    case SYS_copy_file_range:
        return ours(thread, args[2], call);
    case SYS_mmap:
        return (int)args[4] >= 0 && (args[2] & PROT_WRITE) && ours(thread, args[4], call);
    case SYS_open:
        if (!(args[1] & (O_CREAT | O_TRUNC)) || !path_of(thread, -1, args[0], call->path)) return 0;
        call->created = lstat(call->path, &file) != 0;
        return 1;
    case SYS_openat:
        if (!(args[2] & (O_CREAT | O_TRUNC)) || !path_of(thread, (int)args[0], args[1], call->path)) return 0;
        call->created = lstat(call->path, &file) != 0;
        return 1;
    case SYS_mkdir: case SYS_rmdir: case SYS_unlink:
        return path_of(thread, -1, args[0], call->path);
    case SYS_mkdirat: case SYS_unlinkat:
        return path_of(thread, (int)args[0], args[1], call->path);
    case SYS_rename: case SYS_link:
        return path_of(thread, -1, args[0], call->path) & path_of(thread, -1, args[1], call->second);
    case SYS_renameat: case SYS_renameat2: case SYS_linkat:
        return path_of(thread, (int)args[0], args[1], call->path)
            & path_of(thread, (int)args[2], args[3], call->second);
    case SYS_truncate:
        return path_of(thread, -1, args[0], call->path);
    case SYS_fsync: case SYS_fdatasync:
        if (!ours(thread, args[0], call)) return 0;
        uint64_t number = __atomic_add_fetch(&tally[SYNCS], 1, __ATOMIC_SEQ_CST);
        call->fails = tally[FAIL_AT] && number >= tally[FAIL_AT] && number < tally[FAIL_AT] + tally[FAIL_COUNT];
        note('b', call->path, "", call->inode, thread, NULL, 0);
        return 1;
    default:
        return 0;
    }
}

static uint64_t position(pid_t thread, int fd) {
    char name[64];
    unsigned long at = 0;
    snprintf(name, sizeof name, "/proc/%d/fdinfo/%d", thread, fd);
    FILE *file = fopen(name, "r");
    if (!file || fscanf(file, "pos: %lu", &at) != 1) fail("a position");
    fclose(file);
    return at;
}

static void written(pid_t thread, const struct call *call, ull from, uint64_t at, uint64_t length) {
    static char bytes[PIECE];
    while (length > 0) {
        size_t piece = length < PIECE ? length : PIECE;
        if (memory(thread, from, bytes, piece) != piece) fail("reading what was written");
        note('w', "", "", call->inode, at, bytes, piece);
        from += piece, at += piece, length -= piece;
    }
}

static void many_written(pid_t thread, const struct call *call, uint64_t at, uint64_t length) {
    struct iovec part;
    for (ull number = 0; number < call->args[2] && length > 0; number++) {
        if (memory(thread, call->args[1] + number * sizeof part, &part, sizeof part) != sizeof part) fail("parts");
        uint64_t taken = part.iov_len < length ? part.iov_len : length;
        written(thread, call, (ull)part.iov_base, at, taken);
        at += taken, length -= taken;
    }
}

// What the system itself wrote into a file is read back.
static void copied(pid_t thread, const struct call *call, int fd, ull place, uint64_t length) {
    static char bytes[PIECE];
    uint64_t at;
    if (place == 0) at = position(thread, fd) - length;
    else if (memory(thread, place, &at, sizeof at) == sizeof at) at -= length;
    else fail("a place");
    char link[64];
    snprintf(link, sizeof link, "/proc/%d/fd/%d", thread, fd);
    int file = open(link, O_RDONLY | O_CLOEXEC);
    while (length > 0) {
        ssize_t piece = pread(file, bytes, length < PIECE ? length : PIECE, at);
        if (piece <= 0) fail("reading what was copied");
        note('w', "", "", call->inode, at, bytes, piece);
        at += piece, length -= piece;
    }
    close(file);
}

static void opened(pid_t thread, struct call *call, long result, ull flags) {
    char path[PATH];
    strcpy(path, call->path);
    if (!ours(thread, result, call)) return;
    if (call->created) note('c', path, "", call->inode, 0, NULL, 0);
    else if (flags & O_TRUNC) note('t', "", "", call->inode, 0, NULL, 0);
}

static void leave(pid_t thread, struct call *call, long result) {
    const ull *args = call->args;
    if (call->number == SYS_fsync || call->number == SYS_fdatasync) {
        note(result == 0 ? 's' : 'f', call->path, "", call->inode, thread, NULL, 0);
        return;
    }
    if (result < 0) return;
    switch (call->number) {
    case SYS_write: written(thread, call, args[1], position(thread, args[0]) - result, result); break;
    case SYS_writev: many_written(thread, call, position(thread, args[0]) - result, result); break;
    case SYS_pwrite64: written(thread, call, args[1], args[3], result); break;
    case SYS_pwritev: case SYS_pwritev2: many_written(thread, call, args[3], result); break;
    case SYS_copy_file_range: copied(thread, call, args[2], args[3], result); break;
    case SYS_sendfile: copied(thread, call, args[0], 0, result); break;
    case SYS_ftruncate: note('t', "", "", call->inode, args[1], NULL, 0); break;
    case SYS_open: opened(thread, call, result, args[1]); break;
    case SYS_openat: opened(thread, call, result, args[2]); break;
    case SYS_mkdir: case SYS_mkdirat: note('m', call->path, "", inode_of(call->path), 0, NULL, 0); break;
    case SYS_rmdir: note('d', call->path, "", 0, 0, NULL, 0); break;
    case SYS_unlink: note('u', call->path, "", 0, 0, NULL, 0); break;
    case SYS_unlinkat: note(args[2] & AT_REMOVEDIR ? 'd' : 'u', call->path, "", 0, 0, NULL, 0); break;
    case SYS_rename: case SYS_renameat: case SYS_renameat2: note('r', call->path, call->second, 0, 0, NULL, 0); break;
    case SYS_link: case SYS_linkat: note('l', call->path, call->second, 0, 0, NULL, 0); break;
    default: note('x', call->path, "", call->inode, call->number, NULL, 0); break;
    }
}

static void filter(void) {
    static const int numbers[] = {
        SYS_write, SYS_writev, SYS_pwrite64, SYS_pwritev, SYS_pwritev2, SYS_ftruncate, SYS_truncate, SYS_fallocate,
        SYS_sendfile, SYS_copy_file_range, SYS_sync_file_range, SYS_open, SYS_openat, SYS_mkdir, SYS_mkdirat, SYS_rmdir,
        SYS_unlink, SYS_unlinkat, SYS_rename, SYS_renameat, SYS_renameat2, SYS_link, SYS_linkat, SYS_fsync, SYS_fdatasync,
    };
    enum { COUNT = sizeof numbers / sizeof *numbers };
    struct sock_filter rules[COUNT + 8];
    int length = 0;
    rules[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int at = 0; at < COUNT; at++)
        rules[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[at], COUNT - at + 3, 0);
    // Of mappings only shared ones.
    rules[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 2);
    rules[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3]));
    rules[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 1, 0);
    rules[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    rules[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    struct sock_fprog program = {length, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) fail("a filter");
}

static void hand_on(int sign) {
    if (child) kill(child, sign == SIGUSR1 ? SIGKILL : sign);
}

static void stopped(pid_t thread, int status) {
    int sign = WSTOPSIG(status), event = status >> 16;
    struct call *call = call_of(thread);
    struct user_regs_struct regs;
    if (event == PTRACE_EVENT_SECCOMP) {
        if (ptrace(PTRACE_GETREGS, thread, 0, &regs)) return;
        call->number = regs.orig_rax;
        ull args[] = {regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9};
        memcpy(call->args, args, sizeof args);
        if (!enter(thread, call)) {
            ptrace(PTRACE_CONT, thread, 0, 0);
            return;
        }
        if (call->fails) {
            regs.orig_rax = -1;
            ptrace(PTRACE_SETREGS, thread, 0, &regs);
        }
        ptrace(PTRACE_SYSCALL, thread, 0, 0);
    } else if (sign == (SIGTRAP | 0x80)) {
        if (ptrace(PTRACE_GETREGS, thread, 0, &regs)) return;
        if (call->fails) {
            regs.rax = -EIO;
            ptrace(PTRACE_SETREGS, thread, 0, &regs);
        }
        leave(thread, call, (long)regs.rax);
        ptrace(PTRACE_CONT, thread, 0, 0);
    } else {
        ptrace(PTRACE_CONT, thread, 0, event ? 0 : sign);
    }
}

int main(int count, char **words) {
    if (count < 5) return 64;
    root = words[1];
    record_fd = open(words[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int tally_fd = open(words[3], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (record_fd < 0 || tally_fd < 0 || ftruncate(tally_fd, TALLIES * 8)) fail("the record");
    tally = mmap(NULL, TALLIES * 8, PROT_READ | PROT_WRITE, MAP_SHARED, tally_fd, 0);
    int go[2];
    if (tally == MAP_FAILED || pipe2(go, O_CLOEXEC)) fail("the tally");
    child = fork();
    if (child == 0) {
        char byte;
        close(go[1]);
        (void)!read(go[0], &byte, 1);
        filter();
        execvp(words[4], words + 4);
        _exit(71);
    }
    struct sigaction action = {.sa_handler = hand_on};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK
        | PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SEIZE, child, 0, options)) fail("tracing");
    close(go[1]);
    for (;;) {
        int status;
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0 && errno == EINTR) continue;
        if (thread < 0) return 70;
        if (WIFSTOPPED(status)) stopped(thread, status);
        else call_of(thread)->number = 0;
        if (thread == child && WIFEXITED(status)) return WEXITSTATUS(status);
        if (thread == child && WIFSIGNALED(status)) {
            signal(WTERMSIG(status), SIG_DFL);
            raise(WTERMSIG(status));
            return 128 + WTERMSIG(status);
        }
    }
}
