#include "disk_model.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "base/io/mapped_file.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

class LogReader {
 public:
  explicit LogReader(std::string_view text) : text_(text) {}

  bool done() const { return text_.empty(); }
  char letter() { return take(1).front(); }
  std::uint64_t number() {
    std::uint64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string string() { return std::string(take(number())); }

 private:
  std::string_view take(std::size_t size) {
    if (size > text_.size()) throw std::runtime_error("the record of file operations is cut off");
    const auto taken = text_.substr(0, size);
    text_.remove_prefix(size);
    return taken;
  }

  std::string_view text_;
};

std::string last_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

bool happens(std::mt19937& random) {
  return (random() & 1) != 0;
}

}  // namespace

std::vector<FileOperation> read_operations(const std::string& log, const std::string& root) {
  const MappedFile file(log);
  LogReader reader(file.text());
  const auto below = [&](const std::string& path) {
    return path.substr(std::min(path.size(), root.size() + 1));
  };
  std::vector<FileOperation> operations;
  while (!reader.done()) {
    FileOperation operation;
    operation.what = reader.letter();
    const auto path = reader.string();
    operation.path = below(path);
    operation.other = below(reader.string());
    operation.offset = reader.number();
    operation.data = reader.string();
    if (!path.ends_with(" (deleted)")) operations.push_back(std::move(operation));
  }
  return operations;
}

Tree read_tree(const std::string& folder) {
  Tree tree;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const auto name = fs::relative(entry.path(), folder).string();
    if (entry.is_directory())
      tree[name + "/"] = "";
    else
      tree[name] = std::string(MappedFile(entry.path().string()).text());
  }
  return tree;
}

void write_tree(const Tree& tree, const std::string& folder) {
  fs::create_directories(folder);
  for (const auto& [name, content] : tree) {
    const auto path = fs::path(folder) / name;
    if (name.ends_with('/')) {
      fs::create_directories(path);
      continue;
    }
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }
}

DiskModel::DiskModel(const Tree& before) : root_(std::make_shared<Node>()) {
  root_->folder = true;
  const auto add = [&](const std::string& path, bool folder, const std::string& content) {
    auto node = std::make_shared<Node>();
    node->folder = folder;
    node->data = node->kept_data = content;
    auto& parent = folder_of(path);
    parent.names[last_name(path)] = parent.kept_names[last_name(path)] = node;
  };
  for (const auto& [name, content] : before)  // map order lists a folder before its content
    if (name.ends_with('/')) add(name.substr(0, name.size() - 1), true, "");
  for (const auto& [name, content] : before)
    if (!name.ends_with('/')) add(name, false, content);
}

DiskModel::NodePointer DiskModel::find(const std::string& path) const {
  auto node = root_;
  for (std::size_t begin = 0; begin < path.size();) {
    const auto end = std::min(path.find('/', begin), path.size());
    const auto found = node->names.find(path.substr(begin, end - begin));
    if (found == node->names.end()) return nullptr;
    node = found->second;
    begin = end + 1;
  }
  return node;
}

DiskModel::Node& DiskModel::folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  const auto node = slash == std::string::npos ? root_ : find(path.substr(0, slash));
  if (!node) throw std::runtime_error("the record names a folder that is not there: " + path);
  return *node;
}

void DiskModel::change(std::string& data, const DataChange& change) {
  if (change.cut) return data.resize(change.offset);
  if (data.size() < change.offset + change.data.size())
    data.resize(change.offset + change.data.size());
  data.replace(change.offset, change.data.size(), change.data);
}

void DiskModel::change(std::map<std::string, NodePointer>& names, const NameChange& change) {
  if (!change.removed.empty()) names.erase(change.removed);
  if (!change.added.empty()) names[change.added] = change.node;
}

void DiskModel::apply(const FileOperation& operation) {
  const auto& path = operation.path;
  const auto change_names = [](Node& folder, const NameChange& names) {
    change(folder.names, names);
    folder.name_changes.push_back(names);
  };
  const auto change_data = [](Node& node, const DataChange& data) {
    change(node.data, data);
    node.data_changes.push_back(data);
  };
  const auto node = find(path);
  switch (operation.what) {
    case 'c':
    case 'm': {
      auto made = std::make_shared<Node>();
      made->folder = operation.what == 'm';
      return change_names(folder_of(path), {"", last_name(path), made});
    }
    case 't':
      return change_data(*node, {true, operation.offset, ""});
    case 'w':
      return change_data(*node, {false, operation.offset, operation.data});
    case 'u':
      return change_names(folder_of(path), {last_name(path), "", nullptr});
    case 'r': {
      auto& from = folder_of(path);
      auto& to = folder_of(operation.other);
      if (&from == &to)  // a rename within one folder is atomic
        return change_names(from, {last_name(path), last_name(operation.other), node});
      change_names(from, {last_name(path), "", nullptr});
      return change_names(to, {"", last_name(operation.other), node});
    }
    case 'l':
      return change_names(folder_of(operation.other), {"", last_name(operation.other), node});
    case 's':
      if (!node) return;  // above the root, or already removed
      node->kept_data = node->data;
      node->kept_names = node->names;
      node->data_changes.clear();
      node->name_changes.clear();
      return;
    default:
      throw std::runtime_error("an unknown kind of record");
  }
}

Tree DiskModel::after_cut(Unsynced unsynced, std::mt19937& random) const {
  Tree tree;
  collect(*root_, "", unsynced, random, tree);
  return tree;
}

void DiskModel::collect(const Node& node, const std::string& path, Unsynced unsynced,
                        std::mt19937& random, Tree& tree) {
  const auto survives = [&] {
    return unsynced == Unsynced::kept || (unsynced == Unsynced::some && happens(random));
  };
  if (!node.folder) {
    auto data = node.kept_data;
    for (auto piece : node.data_changes) {
      if (!survives()) continue;
      // A power loss may tear a write, or keep only the new length of the file.
      if (unsynced == Unsynced::some && !piece.cut && happens(random)) {
        if (happens(random))
          piece.data.resize(random() % (piece.data.size() + 1));
        else
          piece.data.assign(piece.data.size(), '\0');
      }
      change(data, piece);
    }
    tree[path] = std::move(data);
    return;
  }
  if (!path.empty()) tree[path + "/"] = "";
  auto names = node.kept_names;
  for (const auto& names_changed : node.name_changes)
    if (survives()) change(names, names_changed);
  for (const auto& [name, child] : names)
    collect(*child, path.empty() ? name : path + "/" + name, unsynced, random, tree);
}

}  // namespace qkscope
