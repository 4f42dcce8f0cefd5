#include "base/io/own_files.h"

#include <string>

#include <dlfcn.h>

namespace qkscope {

namespace fs = std::filesystem;

// In a program that holds the library the loader knows what the user typed, which is a path only if
// there is a slash in it.
fs::path library_file() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&library_file), &info) == 0 ||
      info.dli_fname == nullptr || std::string(info.dli_fname).find('/') == std::string::npos)
    return {};
  std::error_code error;
  const auto file = fs::canonical(info.dli_fname, error);
  return error ? fs::path() : file;
}

fs::path program_file() {
  std::error_code error;
  const auto file = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : file;
}

}  // namespace qkscope
