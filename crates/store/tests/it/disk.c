/* A simulated disk that loses power, is full, fails or is read-only: preloaded before libc into a test process.
 *
 * DISK_FOLDER   the folder whose files are on this disk.
 * DISK_DURABLE  a folder with the synced content of each file, updated on every sync. A power loss discards the rest,
 *               so the test then replaces the files by these copies.
 * DISK_FAULTS   a folder with one file per active fault: "full" rejects writes that extend a file, "sync" fails syncs,
 *               "read-only" rejects opening for writing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static pthread_mutex_t platter = PTHREAD_MUTEX_INITIALIZER;

static int is_faulty(const char *fault) {
    const char *faults = getenv("DISK_FAULTS");
    char path[4096];
    if (!faults) return 0;
    snprintf(path, sizeof path, "%s/%s", faults, fault);
    return access(path, F_OK) == 0;
}

/* The name within the folder, or NULL for other files. */
static const char *name_on_disk(const char *path) {
    const char *folder = getenv("DISK_FOLDER");
    size_t length = folder ? strlen(folder) : 0;
    if (!length || strncmp(path, folder, length) || path[length] != '/') return NULL;
    return path + length + 1;
}

static const char *name_of(int fd, char *path, size_t size) {
    char link[64];
    struct stat file;
    if (fstat(fd, &file) || !S_ISREG(file.st_mode)) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    return name_on_disk(path);
}

/* Replaces the durable copy atomically, so that a kill in the middle leaves the old one. */
static void copy_to_platter(int fd, const char *name) {
    const char *durable = getenv("DISK_DURABLE");
    static char buffer[1 << 16];
    char copy[4096], fresh[4200];
    if (!durable) return;
    snprintf(copy, sizeof copy, "%s/%s", durable, name);
    snprintf(fresh, sizeof fresh, "%s.fresh", copy);
    pthread_mutex_lock(&platter);
    int out = REAL(open)(fresh, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t length;
    for (off_t at = 0; out >= 0 && (length = pread(fd, buffer, sizeof buffer, at)) > 0; at += length)
        if (REAL(write)(out, buffer, length) != length) abort();
    if (out < 0 || close(out) || rename(fresh, copy)) abort();
    pthread_mutex_unlock(&platter);
}

static int sync_file(int fd, int (*real)(int)) {
    char path[4096];
    const char *name = name_of(fd, path, sizeof path);
    if (!name) return real(fd);
    if (is_faulty("sync")) return errno = EIO, -1;
    copy_to_platter(fd, name);
    return 0;
}

int fsync(int fd) { return sync_file(fd, REAL(fsync)); }
int fdatasync(int fd) { return sync_file(fd, REAL(fdatasync)); }

static int has_no_room(int fd, off_t end) {
    char path[4096];
    struct stat file;
    return is_faulty("full") && name_of(fd, path, sizeof path) && !fstat(fd, &file) && end > file.st_size;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    if (has_no_room(fd, lseek(fd, 0, SEEK_CUR) + (off_t)length)) return errno = ENOSPC, -1;
    return REAL(write)(fd, bytes, length);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) {
    if (has_no_room(fd, at + (off_t)length)) return errno = ENOSPC, -1;
    return REAL(pwrite)(fd, bytes, length, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t at) { return pwrite(fd, bytes, length, at); }

static int refuses(const char *path, int flags) {
    return (flags & (O_WRONLY | O_RDWR | O_CREAT)) && name_on_disk(path) && is_faulty("read-only");
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    if (refuses(path, flags)) return errno = EROFS, -1;
    return REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    if (refuses(path, flags)) return errno = EROFS, -1;
    return REAL(open)(path, flags, mode);
}
