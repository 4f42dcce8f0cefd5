#include "base/io/folder.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <sys/stat.h>

#include "base/core/error.h"
#include "base/io/output_file.h"

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

std::string parent_folder(const std::string& path) {
  auto parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string make_folders(const std::string& path) {
  if (path.empty() || is_folder(path)) return "";
  if (path.find("://") != std::string::npos)
    bad_input("{}: an address of an object store does not work here; give a local path", path);
  auto made = make_folders(fs::path(path).parent_path().string());
  // Another process may have created the folder meanwhile without syncing it yet: sync in any case.
  if (::mkdir(path.c_str(), 0777) != 0) {
    const int error = errno;
    if (error != EEXIST || !is_folder(path)) system_error("make the folder", path, error);
  }
  sync_folder(parent_folder(path));
  return made.empty() ? path : made;
}

}  // namespace qkscope
