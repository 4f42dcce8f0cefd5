/* Loaded with LD_PRELOAD, makes calls of a program fail in a chosen order.
 *
 *   QKSCOPE_FAULT="write 3"      the third write after the start of main() fails
 *   QKSCOPE_FAULT="thread 2+"    so do the second and all later starts of a thread
 *   QKSCOPE_FAULT_COUNTS=FILE    counts the calls of every kind in FILE (64-bit numbers, in the order of the kinds), and
 *                                lists the call paths of allocations and writes (struct site, as many as fit)
 *
 * Kinds: malloc, write, rename, fsync, open, thread, flock. Children of the program run without the library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum kind { MALLOC, WRITE, RENAME, FSYNC, OPEN, THREAD, FLOCK, KINDS };
static const char* const names[KINDS] = {"malloc", "write", "rename", "fsync", "open", "thread", "flock"};

/* A call path: the return addresses of the innermost functions, those of this file among them. */
enum { PATH_FRAMES = 8, SITES = 1 << 16 };
struct site {
  _Atomic uint64_t path; /* hash of the kind and of the return addresses inside their modules; 0: unused */
  uint64_t kind;
  uint64_t first, last; /* number of the first and of the last call */
};
struct record {
  _Atomic uint64_t counts[KINDS];
  struct site sites[SITES];
};

static _Atomic uint64_t own_counts[KINDS];
static _Atomic uint64_t* counts = own_counts;
static struct record* record = NULL;
static int wanted_kind = -1;
static uint64_t wanted_call = 0;
static int all_later = 0;
static _Atomic int running = 0; /* set when main() begins */

static uint64_t hash_call_path(enum kind kind) {
  void* frames[PATH_FRAMES];
  const int count = backtrace(frames, PATH_FRAMES);
  uint64_t hash = 14695981039346656037u + kind; /* FNV-1a over words */
  for (int i = 0; i < count; ++i) {
    struct dl_find_object module = {0};
    _dl_find_object(frames[i], &module);
    hash = (hash ^ ((uintptr_t)frames[i] - (uintptr_t)module.dlfo_map_start)) * 1099511628211u;
  }
  return hash | 1;
}

static void note_call_path(enum kind kind, uint64_t call) {
  static __thread int inside = 0; /* backtrace() may allocate */
  if (inside) return;
  inside = 1;
  const uint64_t path = hash_call_path(kind);
  for (uint64_t i = 0; i < SITES; ++i) {
    struct site* const site = &record->sites[(path + i) % SITES];
    uint64_t found = 0;
    if (atomic_compare_exchange_strong(&site->path, &found, path)) {
      site->kind = kind;
      site->first = call;
    }
    if (found != 0 && found != path) continue;
    site->last = call;
    break;
  }
  inside = 0;
}

/* Returns whether this call has to fail. */
static int fails(enum kind kind) {
  if (!atomic_load_explicit(&running, memory_order_relaxed)) return 0;
  const uint64_t call = atomic_fetch_add(&counts[kind], 1) + 1;
  if (record != NULL && (kind == MALLOC || kind == WRITE)) note_call_path(kind, call);
  return (int)kind == wanted_kind && (call == wanted_call || (all_later && call > wanted_call));
}

static void read_settings(void) {
  const char* text = getenv("QKSCOPE_FAULT");
  for (int kind = 0; text != NULL && kind < KINDS; ++kind) {
    const size_t length = strlen(names[kind]);
    if (strncmp(text, names[kind], length) != 0 || text[length] != ' ') continue;
    char* end = NULL;
    wanted_call = strtoull(text + length, &end, 10);
    all_later = *end == '+';
    wanted_kind = kind;
  }
  const char* path = getenv("QKSCOPE_FAULT_COUNTS");
  if (path != NULL) {
    const int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file >= 0 && ftruncate(file, sizeof *record) == 0) {
      void* shared = mmap(NULL, sizeof *record, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      if (shared != MAP_FAILED) record = shared;
    }
    if (record != NULL) {
      counts = record->counts;
      hash_call_path(MALLOC); /* loads the unwinder */
    }
    if (file >= 0) syscall(SYS_close, file);
  }
  unsetenv("LD_PRELOAD");
}

static int (*real_main)(int, char**, char**);

static int counted_main(int argc, char** argv, char** environment) {
  read_settings();
  atomic_store(&running, 1);
  return real_main(argc, argv, environment);
}

int __libc_start_main(int (*main_function)(int, char**, char**), int argc, char** argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void* stack_end) {
  typedef int (*Start)(int (*)(int, char**, char**), int, char**, void (*)(void), void (*)(void), void (*)(void),
                       void*);
  const Start start = (Start)dlsym(RTLD_NEXT, "__libc_start_main");
  real_main = main_function;
  return start(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

/* ---- Memory */

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

static void* out_of_memory(void) {
  errno = ENOMEM;
  return NULL;
}

void* malloc(size_t size) { return fails(MALLOC) ? out_of_memory() : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails(MALLOC) ? out_of_memory() : __libc_calloc(count, size); }
void* realloc(void* old, size_t size) { return fails(MALLOC) ? out_of_memory() : __libc_realloc(old, size); }
void* memalign(size_t alignment, size_t size) {
  return fails(MALLOC) ? out_of_memory() : __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** result, size_t alignment, size_t size) {
  void* memory = memalign(alignment, size);
  if (memory == NULL) return ENOMEM;
  *result = memory;
  return 0;
}

/* ---- Files */

static long failed(int error) {
  errno = error;
  return -1;
}

ssize_t write(int file, const void* data, size_t size) {
  if (file > STDERR_FILENO && fails(WRITE)) return failed(ENOSPC);
  return syscall(SYS_write, file, data, size);
}

ssize_t pwrite(int file, const void* data, size_t size, off_t offset) {
  return fails(WRITE) ? failed(ENOSPC) : syscall(SYS_pwrite64, file, data, size, offset);
}
ssize_t pwrite64(int file, const void* data, size_t size, off_t offset) { return pwrite(file, data, size, offset); }

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return (int)(fails(RENAME) ? failed(EIO) : syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  return renameat2(from_folder, from, to_folder, to, 0);
}
int rename(const char* from, const char* to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int fsync(int file) { return (int)(fails(FSYNC) ? failed(EIO) : syscall(SYS_fsync, file)); }
int fdatasync(int file) { return (int)(fails(FSYNC) ? failed(EIO) : syscall(SYS_fdatasync, file)); }

static int open_at(int folder, const char* path, int flags, va_list arguments) {
  const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  return (int)(fails(OPEN) ? failed(EMFILE) : syscall(SYS_openat, folder, path, flags, mode));
}
#define OPEN_FUNCTION(NAME)                                     \
  int NAME(const char* path, int flags, ...) {                  \
    va_list arguments;                                          \
    va_start(arguments, flags);                                 \
    const int file = open_at(AT_FDCWD, path, flags, arguments); \
    va_end(arguments);                                          \
    return file;                                                \
  }
OPEN_FUNCTION(open)
OPEN_FUNCTION(open64)
#define OPENAT_FUNCTION(NAME)                                 \
  int NAME(int folder, const char* path, int flags, ...) {    \
    va_list arguments;                                        \
    va_start(arguments, flags);                               \
    const int file = open_at(folder, path, flags, arguments); \
    va_end(arguments);                                        \
    return file;                                              \
  }
OPENAT_FUNCTION(openat)
OPENAT_FUNCTION(openat64)

int flock(int file, int operation) {
  return (int)(fails(FLOCK) ? failed(ENOSYS) : syscall(SYS_flock, file, operation));
}

/* ---- Threads */

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  typedef int (*Create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static _Atomic(Create) create;
  if (fails(THREAD)) return EAGAIN;
  if (atomic_load(&create) == NULL) atomic_store(&create, (Create)dlsym(RTLD_NEXT, "pthread_create"));
  return atomic_load(&create)(thread, attributes, body, argument);
}
