// file:// addresses: folders that several machines may share. The conditional put uses link(2),
// which fails if the name exists, also on network file systems.
#include <cerrno>
#include <filesystem>

#include <arrow/filesystem/localfs.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/io/arrow_error.h"
#include "base/io/folder.h"
#include "base/io/output_file.h"
#include "input/store/arrow_store.h"

namespace qkscope {
namespace {

class LocalStore : public ArrowStore {
 public:
  explicit LocalStore(const StoreAddress& address)
      : ArrowStore(address, std::make_shared<arrow::fs::LocalFileSystem>()) {}

  ObjectContent put(const std::string& name, const std::string& file) override {
    const auto content = ArrowStore::put(name, file);
    sync_file(path_of(name));
    sync_folder(parent_folder(path_of(name)));
    return content;
  }

  void remove(const std::string& name) override {
    auto path = path_of(name);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) system_error("remove", path, errno);
    // Removes empty parent folders, because object stores have no folders.
    const auto base = path_of("");
    for (path = parent_folder(path); path != base; path = parent_folder(path))
      if (::rmdir(path.c_str()) != 0) return;
  }

 protected:
  bool put_new(const std::string& name, const std::string& content) override {
    prepare(name);
    const auto path = path_of(name);
    const auto beside = temporary_name(path);
    write_file(beside, content);
    const bool linked = ::link(beside.c_str(), path.c_str()) == 0;
    const int error = errno;
    ::unlink(beside.c_str());
    if (!linked && error != EEXIST) system_error("write", path, error);
    sync_folder(parent_folder(path));
    return linked;
  }

  void prepare(const std::string& name) override { make_folders(parent_folder(path_of(name))); }

  [[noreturn]] void throw_status(const arrow::Status& status, const std::string& doing) override {
    check_arrow(status, doing, ErrorKind::bad_input);
    failure("{}: an error without a reason", doing);
  }
};

}  // namespace

std::unique_ptr<ObjectStore> open_local_store(const StoreAddress& address) {
  const auto path = address.arrow_path();
  if (path_exists(path) && !is_folder(path))
    bad_input("{}: is a file, expected a folder", address.to_string());
  return std::make_unique<LocalStore>(address);
}

}  // namespace qkscope
