// A folder held open, and what is done to the names in it without ever following a link: what
// someone else may have put there can neither be read through, nor written to, nor have something
// removed.
#pragma once

#include <string>
#include <vector>

namespace qkscope {

class OpenFolder {
 public:
  // The folder itself may be reached through links: it is the user's choice.
  explicit OpenFolder(const std::string& path);
  ~OpenFolder();
  OpenFolder(OpenFolder&& other) noexcept;
  OpenFolder& operator=(OpenFolder&&) = delete;
  OpenFolder(const OpenFolder&) = delete;
  OpenFolder& operator=(const OpenFolder&) = delete;

  const std::string& path() const { return path_; }

  // Of everything in it, sorted.
  std::vector<std::string> names() const;
  bool has(const std::string& name) const;
  bool has_folder(const std::string& name) const;  // a folder, not a link to one
  bool has_link(const std::string& name) const;

  // A link, or anything else that is no folder, is bad input.
  OpenFolder folder(const std::string& name) const;
  OpenFolder make_folder(const std::string& name) const;  // where it is not there

  // Nothing happens where the name is not there. A link is removed itself.
  void remove_file(const std::string& name) const;
  void remove_tree(const std::string& name) const;
  // False where something is in it.
  bool remove_empty_folder(const std::string& name) const;

  // Renames a file of this folder into the other, in place of what has the name there.
  void move(const std::string& name, const OpenFolder& to) const;

  // Waits until the names are on the disk.
  void sync() const;

 private:
  OpenFolder(std::string path, int folder) : path_(std::move(path)), folder_(folder) {}
  std::string path_of(const std::string& name) const { return path_ + "/" + name; }

  std::string path_;
  int folder_ = -1;
};

}  // namespace qkscope
