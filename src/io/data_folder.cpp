#include "io/data_folder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <dlfcn.h>

namespace qkscope {
namespace {

namespace fs = std::filesystem;

// The file this function was loaded from; "" where the loader does not know. In a program that
// holds the library it is what the user typed, which is a path only if there is a slash in it.
fs::path library_file() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&data_folders), &info) == 0 ||
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

}  // namespace

std::vector<std::string> data_folders() {
  if (const char* chosen = std::getenv("QKSCOPE_DATA"); chosen != nullptr && *chosen != '\0')
    return {chosen};
  std::vector<std::string> folders;
  const auto add = [&](const fs::path& file, const char* way) {
    auto folder = (file.parent_path() / way).lexically_normal().string();
    if (!file.empty() && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(std::move(folder));
  };
  add(library_file(), QKSCOPE_LIBRARY_TO_DATA);
  add(program_file(), QKSCOPE_PROGRAM_TO_DATA);
  folders.emplace_back(QKSCOPE_SOURCE_DIR "/share");
  return folders;
}

}  // namespace qkscope
