// A model of a disk that may lose power at any moment. It replays the operations recorded by
// file_recorder.cpp and returns possible disk contents after a power loss: synced data survives,
// any subset of unsynced data is lost. The rules are the minimum of POSIX: fsync of a file keeps
// its data but not its name, fsync of a folder keeps names, and a folder whose own name is lost
// loses its content.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace qkscope {

struct FileOperation {
  char what = 0;  // c: create, t: truncate to `offset` bytes, w: write, s: fsync, r: rename to
                  // `other`, l: hard link `other`, u: remove, m: create a folder
  std::string path;
  std::string other;
  std::uint64_t offset = 0;
  std::string data;
};

// Reads a log of file_recorder.cpp; paths become relative to `root`.
std::vector<FileOperation> read_operations(const std::string& log, const std::string& root);

// Paths and contents of files; folder paths end in "/".
using Tree = std::map<std::string, std::string>;

// Reads all files and folders below a folder.
Tree read_tree(const std::string& folder);
// Writes a tree to an empty or missing folder.
void write_tree(const Tree& tree, const std::string& folder);

class DiskModel {
 public:
  explicit DiskModel(const Tree& before);  // initial content, fully synced

  void apply(const FileOperation& operation);

  enum class Unsynced { lost, kept, some };
  // Returns a possible content after a power loss now.
  Tree after_cut(Unsynced unsynced, std::mt19937& random) const;

 private:
  struct Node;
  using NodePointer = std::shared_ptr<Node>;

  // A change of names in one folder: a name is added, removed, or both.
  struct NameChange {
    std::string removed;
    std::string added;
    NodePointer node;
  };
  struct DataChange {
    bool cut = false;  // truncate to `offset` bytes
    std::uint64_t offset = 0;
    std::string data;
  };
  struct Node {
    bool folder = false;
    std::map<std::string, NodePointer> names;  // visible to the program
    std::map<std::string, NodePointer> kept_names;
    std::vector<NameChange> name_changes;  // since the folder was synced
    std::string data;                      // visible to the program
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
