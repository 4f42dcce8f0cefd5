// A disk whose power may go at any moment. It takes the operations that file_recorder.cpp wrote
// down and gives the folders as they may look after a cut: what was synced is there, of what was
// not, anything from nothing to all. The rules are those of POSIX and not those of a kind file
// system: syncing a file keeps its data but not its name, a name is kept by syncing its folder, and
// what lies in a folder whose own name was not kept is lost.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace qkscope {

struct FileOperation {
  char what = 0;  // c: made, t: cut to `offset` bytes, w: written, s: synced, r: renamed to
                  // `other`, u: removed, m: folder made
  std::string path;
  std::string other;
  std::uint64_t offset = 0;
  std::string data;
};

// Below `root`, relative to it.
std::vector<FileOperation> read_operations(const std::string& log, const std::string& root);

// Files with their content; folders end in "/".
using Tree = std::map<std::string, std::string>;

// All files and folders below a folder.
Tree read_tree(const std::string& folder);
// Puts it into an empty or missing folder.
void write_tree(const Tree& tree, const std::string& folder);

class DiskModel {
 public:
  explicit DiskModel(const Tree& before);  // all of it on the disk

  void apply(const FileOperation& operation);

  enum class Unsynced { lost, kept, some };
  // What a cut now may leave.
  Tree after_cut(Unsynced unsynced, std::mt19937& random) const;

 private:
  struct Node;
  using NodePointer = std::shared_ptr<Node>;

  // A change of names in one folder: with a name that appears, one that goes, or both.
  struct NameChange {
    std::string removed;
    std::string added;
    NodePointer node;
  };
  struct DataChange {
    bool cut = false;  // to `offset` bytes
    std::uint64_t offset = 0;
    std::string data;
  };
  struct Node {
    bool folder = false;
    std::map<std::string, NodePointer> names;  // as the program sees them
    std::map<std::string, NodePointer> kept_names;
    std::vector<NameChange> name_changes;  // since the folder was synced
    std::string data;                      // as the program sees it
    std::string kept_data;
    std::vector<DataChange> data_changes;
  };

  Node& folder_of(const std::string& path);
  NodePointer find(const std::string& path) const;
  static void change(std::string& data, const DataChange& change);
  static void change(std::map<std::string, NodePointer>& names, const NameChange& change);
  static void collect(const Node& node, const std::string& path, Unsynced unsynced,
                      std::mt19937& random, Tree& tree);

  NodePointer root_;
};

}  // namespace qkscope
