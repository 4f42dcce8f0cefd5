#include <algorithm>
#include <cstdlib>

#include <dlfcn.h>

#include "base/io/folder.h"

namespace qkscope {

namespace fs = std::filesystem;

// For a statically linked program dladdr() reports argv[0], which is a path only if it has a slash.
fs::path own_library_path() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_library_path), &info) == 0 ||
      info.dli_fname == nullptr || std::string(info.dli_fname).find('/') == std::string::npos)
    return {};
  std::error_code error;
  const auto file = fs::canonical(info.dli_fname, error);
  return error ? fs::path() : file;
}

fs::path own_program_path() {
  std::error_code error;
  const auto file = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : file;
}

namespace {

// Resolves relative paths against the folders of the library and of the program; drops duplicates.
std::vector<std::string> resolve_folders(const char* from_library, const char* from_program) {
  std::vector<std::string> folders;
  const auto add = [&](const fs::path& file, const char* way) {
    auto folder = (file.parent_path() / way).lexically_normal().string();
    if (!file.empty() && std::ranges::find(folders, folder) == folders.end())
      folders.push_back(std::move(folder));
  };
  add(own_library_path(), from_library);
  add(own_program_path(), from_program);
  return folders;
}

}  // namespace

std::vector<std::string> shared_data_folders() {
  if (const char* chosen = std::getenv("QKSCOPE_DATA"); chosen != nullptr && *chosen != '\0')
    return {chosen};
  auto folders = resolve_folders(QKSCOPE_LIBRARY_TO_DATA, QKSCOPE_PROGRAM_TO_DATA);
  if (const std::string source = QKSCOPE_SOURCE_DATA; !source.empty()) folders.push_back(source);
  return folders;
}

std::vector<std::string> helper_program_folders() {
  return resolve_folders(QKSCOPE_LIBRARY_TO_HELPERS, QKSCOPE_PROGRAM_TO_HELPERS);
}

}  // namespace qkscope
