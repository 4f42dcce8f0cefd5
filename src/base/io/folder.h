// Folder functions (queries, creation, removal) that never throw std::filesystem exceptions, and
// the folders of files installed with qkscope: data (the demo, published numbers, configurations)
// and helper programs.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include "base/io/output_file.h"

namespace qkscope {

// path_exists() and is_folder() also return false on errors, such as missing permissions.
bool path_exists(const std::string& path);
bool is_folder(const std::string& path);

// Throws a bad-input error if the path is a folder, pipe or device. A missing path is accepted here
// and reported when it is opened.
void check_regular_file(const std::string& path);

// Returns the sorted names of all entries of a folder, without "." and "..".
std::vector<std::string> entry_names(const std::string& folder);

// Returns the parent of a path; "." for a bare name.
std::string parent_folder(const std::string& path);

// Creates a folder and its missing parents durably (fsync). Returns the outermost new folder or "".
std::string make_folders(const std::string& path);

// An open folder. Its operations (openat, unlinkat, renameat) never follow symbolic links, so that
// a link planted by another user cannot redirect a read, write or delete.
class FolderHandle {
 public:
  // `path` may contain symbolic links, unlike the names passed to the functions below.
  explicit FolderHandle(const std::string& path);

  const std::string& path() const { return path_; }

  // Sorted names of all entries.
  std::vector<std::string> entry_names() const;
  bool has_entry(const std::string& name) const { return mode_of(name) != 0; }
  bool has_folder(const std::string& name) const { return S_ISDIR(mode_of(name)); }  // not a link
  bool has_link(const std::string& name) const { return S_ISLNK(mode_of(name)); }

  // Opens a subfolder. Throws a bad-input error if the entry is a link or not a folder.
  FolderHandle open_subfolder(const std::string& name) const;
  FolderHandle make_folder(const std::string& name) const;  // creates the folder if missing

  // remove_file() and remove_tree() delete an entry; a missing name is not an error. They delete a
  // symbolic link, not its target.
  void remove_file(const std::string& name) const;
  void remove_tree(const std::string& name) const;
  // Removes an empty folder. Returns false if the folder is not empty.
  bool remove_empty_folder(const std::string& name) const;

  // Moves a file to the folder `to` and replaces a file of the same name there.
  void move_file(const std::string& name, const FolderHandle& to) const;

  // fsync of the folder.
  void sync() const;

 private:
  FolderHandle(std::string path, FileDescriptor folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}
  std::string path_of(const std::string& name) const { return path_ + "/" + name; }
  // Returns st_mode of an entry, without following a symbolic link; 0 if there is no such entry.
  mode_t mode_of(const std::string& name) const;

  std::string path_;
  FileDescriptor folder_;
};

// Returns the path of the shared library that holds this code, or of the program if it is linked
// statically; "" if the dynamic loader cannot tell.
std::filesystem::path own_library_path();
std::filesystem::path own_program_path();

// Returns candidate folders that hold demo/, published/ and configs/, in order of preference; they
// need not exist. If $QKSCOPE_DATA is set, it is the only candidate. Otherwise share/qkscope of the
// installation, then share/ of the source tree (not in packaged builds).
std::vector<std::string> shared_data_folders();

// Returns candidate folders for helper programs such as a bundled gnuplot: libexec/qkscope of the
// installation. The folders need not exist.
std::vector<std::string> helper_program_folders();

}  // namespace qkscope
