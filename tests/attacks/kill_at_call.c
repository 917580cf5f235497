/* Counts the calls by which a process changes files, and kills the process just before the call of a given number.

   Loaded by LD_PRELOAD; `kill_at_call(number)` arms it, 0 only counts; `calls_so_far()` tells how many there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

static long calls = 0, last = 0;
static int armed = 0;

void kill_at_call(long number) { calls = 0; last = number; armed = 1; }
long calls_so_far(void) { return calls; }

static void count(void) {
    if (armed && ++calls == last) kill(getpid(), SIGKILL);
}

#define NEXT(name) static __typeof__(&name) next; if (!next) next = dlsym(RTLD_NEXT, #name)

/* Pipes and terminals are no files: what a process says does not count. */
static int is_file(int handle) { return lseek(handle, 0, SEEK_CUR) >= 0; }

ssize_t write(int handle, const void *bytes, size_t size) { NEXT(write); if (is_file(handle)) count(); return next(handle, bytes, size); }
ssize_t pwrite(int handle, const void *bytes, size_t size, off_t at) { NEXT(pwrite); count(); return next(handle, bytes, size, at); }
ssize_t pwrite64(int handle, const void *bytes, size_t size, off64_t at) { NEXT(pwrite64); count(); return next(handle, bytes, size, at); }
int fsync(int handle) { NEXT(fsync); count(); return next(handle); }
int fdatasync(int handle) { NEXT(fdatasync); count(); return next(handle); }
int ftruncate(int handle, off_t size) { NEXT(ftruncate); count(); return next(handle, size); }
int ftruncate64(int handle, off64_t size) { NEXT(ftruncate64); count(); return next(handle, size); }
int rename(const char *from, const char *to) { NEXT(rename); count(); return next(from, to); }
int renameat(int a, const char *from, int b, const char *to) { NEXT(renameat); count(); return next(a, from, b, to); }
int unlink(const char *path) { NEXT(unlink); count(); return next(path); }
int unlinkat(int folder, const char *path, int flags) { NEXT(unlinkat); count(); return next(folder, path, flags); }
int mkdir(const char *path, mode_t mode) { NEXT(mkdir); count(); return next(path, mode); }
int rmdir(const char *path) { NEXT(rmdir); count(); return next(path); }
