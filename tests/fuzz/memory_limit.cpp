#include "memory_limit.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <malloc.h>

namespace {

std::atomic<std::int64_t> allocated{0};
std::atomic<std::int64_t> limit{INT64_MAX};

void count(std::int64_t bytes) {
  if ((allocated += bytes) <= limit) return;
  limit = INT64_MAX;  // the report allocates, too
  std::fprintf(stderr,
               "more memory than the limit is allocated; the last allocation has %lld bytes\n",
               static_cast<long long>(bytes));
  std::abort();
}

// Arrow's other allocators cannot be observed. Runs before Arrow chooses one.
[[maybe_unused]] const bool system_allocator =
    ::setenv("ARROW_DEFAULT_MEMORY_POOL", "system", 1) == 0;

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(QKSCOPE_SANITIZED)

// Declared here, because g++ has no header for the allocator of the sanitizers.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*,
                                                                  std::size_t),
                                                         void (*)(const volatile void*));
extern "C" std::size_t __sanitizer_get_allocated_size(const volatile void*);

namespace {

[[maybe_unused]] const int hooks = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t bytes) { count(static_cast<std::int64_t>(bytes)); },
    [](const volatile void* memory) {
      if (memory != nullptr)
        allocated -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(memory));
    });

}  // namespace

#else

// Replace the functions of glibc by ones that count.
extern "C" {

// These names are reserved for glibc, which defines them.
// NOLINTBEGIN(bugprone-reserved-identifier)
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
// NOLINTEND(bugprone-reserved-identifier)

static void* counted(void* memory) {
  if (memory != nullptr) count(static_cast<std::int64_t>(::malloc_usable_size(memory)));
  return memory;
}

void* malloc(std::size_t bytes) {
  return counted(__libc_malloc(bytes));
}

void* calloc(std::size_t number, std::size_t bytes) {
  return counted(__libc_calloc(number, bytes));
}

void free(void* memory) {
  if (memory != nullptr) allocated -= static_cast<std::int64_t>(::malloc_usable_size(memory));
  __libc_free(memory);
}

void* realloc(void* memory, std::size_t bytes) {
  const auto before = memory == nullptr ? 0 : ::malloc_usable_size(memory);
  void* moved = __libc_realloc(memory, bytes);
  if (moved == nullptr && bytes != 0) return nullptr;
  allocated -= static_cast<std::int64_t>(before);
  return counted(moved);
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  return counted(__libc_memalign(alignment, bytes));
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return memalign(alignment, bytes);
}

int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}

}  // extern "C"

#endif

namespace qkscope {

MemoryLimit::MemoryLimit(std::size_t file_bytes) {
  limit = allocated + static_cast<std::int64_t>(kBaseBytes + kBytesPerByte * file_bytes);
}

MemoryLimit::~MemoryLimit() {
  limit = INT64_MAX;
}

}  // namespace qkscope
