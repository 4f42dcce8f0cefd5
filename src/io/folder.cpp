#include "io/folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/error.h"

namespace qkscope {

namespace fs = std::filesystem;

bool path_exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

void check_regular_file(const std::string& path) {
  std::error_code ignored;
  const auto type = fs::status(path, ignored).type();
  if (type == fs::file_type::directory) bad_input("{}: a folder, expected a file", path);
  if (fs::exists(fs::file_status(type)) && type != fs::file_type::regular)
    bad_input("{}: not a regular file; copy what it gives into one first", path);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  try {
    for (const auto& entry : fs::directory_iterator(folder))
      names.push_back(entry.path().filename().string());
  } catch (const fs::filesystem_error& error) {
    system_error("list the folder", folder, error.code().value());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) system_error("make the folder", path, error.value());
}

}  // namespace qkscope
