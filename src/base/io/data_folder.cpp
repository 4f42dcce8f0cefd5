#include "base/io/data_folder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/io/own_files.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

// Folders of the installation, as seen from the library and from the program.
std::vector<std::string> installed_folders(const char* from_library, const char* from_program) {
  std::vector<std::string> folders;
  const auto add = [&](const fs::path& file, const char* way) {
    auto folder = (file.parent_path() / way).lexically_normal().string();
    if (!file.empty() && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(std::move(folder));
  };
  add(library_file(), from_library);
  add(program_file(), from_program);
  return folders;
}

}  // namespace

std::vector<std::string> data_folders() {
  if (const char* chosen = std::getenv("QKSCOPE_DATA"); chosen != nullptr && *chosen != '\0')
    return {chosen};
  auto folders = installed_folders(QKSCOPE_LIBRARY_TO_DATA, QKSCOPE_PROGRAM_TO_DATA);
  if (const std::string source = QKSCOPE_SOURCE_DATA; !source.empty()) folders.push_back(source);
  return folders;
}

std::vector<std::string> helper_folders() {
  return installed_folders(QKSCOPE_LIBRARY_TO_HELPERS, QKSCOPE_PROGRAM_TO_HELPERS);
}

}  // namespace qkscope
