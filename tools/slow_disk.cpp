// Simulates a slow disk when loaded with LD_PRELOAD: writes run at 20 MB/s and every sync takes
// 10 ms longer.
#include <chrono>
#include <thread>

#include <dlfcn.h>
#include <unistd.h>

namespace {

template <typename Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

ssize_t written(ssize_t bytes) {
  if (bytes > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(50) * bytes);
  return bytes;
}

void wait_for_disk() {
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace

extern "C" ssize_t write(int file, const void* data, size_t bytes) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t)>("write");
  return written(next(file, data, bytes));
}

extern "C" ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t offset) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
  return written(next(file, data, bytes, offset));
}

extern "C" ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  return pwrite64(file, data, bytes, offset);
}

extern "C" int fsync(int file) {
  static const auto next = real<int (*)(int)>("fsync");
  wait_for_disk();
  return next(file);
}

extern "C" int fdatasync(int file) {
  static const auto next = real<int (*)(int)>("fdatasync");
  wait_for_disk();
  return next(file);
}
