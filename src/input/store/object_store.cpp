#include "input/store/object_store.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <random>
#include <thread>

#include <arrow/buffer.h>
#include <arrow/filesystem/localfs.h>
#include <arrow/io/interfaces.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/io/arrow_error.h"
#include "base/io/checksum.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "input/hub/http.h"

namespace qkscope {
namespace {

constexpr std::int64_t kBufferBytes = std::int64_t{4} << 20;  // bytes per read or write
constexpr int kMaxDownloads = 4;  // downloads with a wrong checksum before giving up

StoredObject to_stored_object(const arrow::fs::FileInfo& info, const std::string& name) {
  return {.name = name,
          .bytes = static_cast<std::uint64_t>(info.size()),
          .modified = std::chrono::duration<double>(info.mtime().time_since_epoch()).count()};
}

// Store for file:// addresses: folders that several machines may share. Conditional puts use
// link(2), which fails if the name exists, even on network file systems.
class LocalStore : public ObjectStore {
 public:
  explicit LocalStore(const StoreUri& address)
      : ObjectStore(address, std::make_shared<arrow::fs::LocalFileSystem>()) {}

  ObjectFingerprint put(const std::string& name, const std::string& file) override {
    auto content = ObjectStore::put(name, file);
    fsync_file(object_path(name));
    fsync_folder(parent_folder(object_path(name)));
    return content;
  }

  void remove(const std::string& name) override {
    auto path = object_path(name);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw_system_error("remove", path, errno);
    // Remove empty parent folders: an object store has no folders, so its prefix would disappear.
    const auto base = object_path("");
    for (path = parent_folder(path); path != base; path = parent_folder(path))
      if (::rmdir(path.c_str()) != 0) return;
  }

 protected:
  bool try_put_if_absent(const std::string& name, const std::string& content) override {
    make_parent_folders(name);
    const auto path = object_path(name);
    const auto beside = temporary_path(path);
    write_file(beside, content);
    const bool linked = ::link(beside.c_str(), path.c_str()) == 0;
    const int error = errno;
    ::unlink(beside.c_str());
    if (!linked && error != EEXIST) throw_system_error("write", path, error);
    fsync_folder(parent_folder(path));
    return linked;
  }

  void make_parent_folders(const std::string& name) override {
    make_folders(parent_folder(object_path(name)));
  }

  [[noreturn]] void throw_error(const arrow::Status& status, const std::string& doing) override {
    check_arrow_status(status, doing, ErrorKind::bad_input);
    throw_failure("{}: an error without a reason", doing);
  }
};

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

struct Lease {
  std::string owner;
  double until = 0.0;  // Unix time in seconds
};

// A malformed lease has no owner.
Lease parse_lease(const std::string& text) {
  const auto json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return {};
  return {json.value("owner", ""), json.value("until", 0.0)};
}

}  // namespace

void ObjectStore::check_status(const arrow::Status& status, const std::string& doing) {
  if (!status.ok()) throw_error(status, doing);
}

std::string ObjectStore::object_path(const std::string& name) const {
  const auto base = address_.arrow_path();
  return name.empty() ? base : base + "/" + name;
}

std::optional<StoredObject> ObjectStore::find(const std::string& name) {
  const auto info = value_or_throw(files_->GetFileInfo(object_path(name)), object_address(name));
  if (info.type() != arrow::fs::FileType::File) return {};
  return to_stored_object(info, name);
}

std::optional<std::string> ObjectStore::read(const std::string& name) {
  const auto doing = object_address(name);
  const auto info = value_or_throw(files_->GetFileInfo(object_path(name)), doing);
  if (info.type() != arrow::fs::FileType::File) return {};
  const auto input = value_or_throw(files_->OpenInputFile(info), doing);
  return value_or_throw(input->ReadAt(0, info.size()), doing)->ToString();
}

void ObjectStore::download_to_file(const std::string& name, const std::string& file,
                                   const std::optional<ObjectFingerprint>& expected) {
  const auto doing = object_address(name);
  for (int download = 1;; ++download) {
    const auto input = value_or_throw(files_->OpenInputStream(object_path(name)), doing);
    OutputFile output(file);
    Checksum sum;
    while (true) {
      const auto piece = value_or_throw(input->Read(kBufferBytes), doing);
      if (piece->size() == 0) break;
      const std::string_view bytes(*piece);
      sum.add(bytes);
      output.write(bytes);
    }
    const ObjectFingerprint found{output.bytes_written(), format_checksum(sum.value())};
    if (!expected || found == *expected) return output.commit();
    if (download == kMaxDownloads)
      reject(
          "{}: is damaged: {} bytes with the checksum {}, expected {} bytes with {}; make it anew",
          doing, found.bytes, found.checksum, expected->bytes, expected->checksum);
    std::this_thread::sleep_for(std::chrono::milliseconds(100 << download));
  }
}

ObjectFingerprint ObjectStore::put(const std::string& name, const std::string& file) {
  const auto doing = object_address(name);
  const MappedFile content(file);
  const auto text = content.text();
  make_parent_folders(name);
  const auto output = value_or_throw(files_->OpenOutputStream(object_path(name)), doing);
  Checksum sum;
  for (std::size_t at = 0; at < text.size(); at += kBufferBytes) {
    const auto piece = text.substr(at, kBufferBytes);
    sum.add(piece);
    check_status(output->Write(piece), doing);
  }
  check_status(output->Close(), doing);
  return {text.size(), format_checksum(sum.value())};
}

std::vector<StoredObject> ObjectStore::list(const std::string& prefix) {
  arrow::fs::FileSelector selector;
  selector.base_dir = object_path(prefix);
  selector.recursive = true;
  selector.allow_not_found = true;
  auto listed = files_->GetFileInfo(selector);
  // Retry once: Arrow checks a local folder twice and fails if it is created between the checks.
  if (!listed.ok() && address_.scheme == StoreUri::UriScheme::file)
    listed = files_->GetFileInfo(selector);
  const auto found = value_or_throw(std::move(listed), object_address(prefix));
  const auto base = object_path("") + "/";
  std::vector<StoredObject> objects;
  for (const auto& info : found) {
    if (info.type() != arrow::fs::FileType::File || !info.path().starts_with(base)) continue;
    objects.push_back(to_stored_object(info, info.path().substr(base.size())));
  }
  std::ranges::sort(objects, {}, &StoredObject::name);
  return objects;
}

std::string ObjectStore::object_address(const std::string& name) const {
  const auto base = address_.to_string();
  return name.empty() ? base : base + "/" + name;
}

std::unique_ptr<ObjectStore> open_store(const StoreUri& address) {
  if (address.scheme == StoreUri::UriScheme::s3) return open_s3_store(address);
  if (address.scheme == StoreUri::UriScheme::gs) return open_gcs_store(address);
  const auto path = address.arrow_path();
  if (path_exists(path) && !is_folder(path))
    reject("{}: is a file, expected a folder", address.to_string());
  return std::make_unique<LocalStore>(address);
}

void download_objects(ObjectStore& store, const std::vector<ObjectDownload>& downloads,
                      bool quiet) {
  if (downloads.empty()) return;
  const auto sizes =
      to_vector(downloads, [](const auto& download) { return download.content.bytes; });
  TransferProgress meter("download", sizes, quiet);
  run_transfers(downloads.size(), [&](std::size_t i, const std::atomic<bool>&) {
    const auto& [name, path, content] = downloads[i];
    make_folders(parent_folder(path));
    meter.update(i, 0);
    store.download_to_file(name, path,
                           content.checksum.empty() ? std::nullopt : std::optional(content));
    if (std::filesystem::file_size(path) != content.bytes)
      throw_failure("{}: {} bytes came, expected {}; run the same command again",
                    store.object_address(name), std::filesystem::file_size(path), content.bytes);
    meter.update(i, content.bytes);
  });
}

void verify_conditional_put_support(ObjectStore& store, const std::string& name) {
  if (!store.put_if_absent(name, "a second one\n")) return;
  store.remove(name);
  throw_failure(
      "{}: the store puts objects over others although it was told not to (If-None-Match: *); two "
      "writers could mix there, so nothing is written",
      store.address().to_string());
}

void remove_objects(ObjectStore& store, const std::vector<std::string>& names) {
  run_transfers(names.size(),
                [&](std::size_t i, const std::atomic<bool>&) { store.remove(names[i]); });
}

std::string make_timestamped_id() {
  std::random_device random;
  const auto now = std::time(nullptr);
  return fmt::format("{:%Y%m%dT%H%M%S}-{:08x}{:08x}", fmt::gmtime(now), random(), random());
}

bool put_with_lease(const LeaseBackend& store, const std::string& name, const std::string& content,
                    const LeaseDurations& times) {
  const auto lease_name = name + kLeaseSuffix;
  const auto owner = make_timestamped_id();
  while (!store.read(name)) {
    const auto there = store.read(lease_name);
    if (there && parse_lease(*there).until > unix_seconds()) {
      sleep_seconds(times.settle_time / 2);
      continue;
    }
    store.write(lease_name,
                Json{{"owner", owner}, {"until", unix_seconds() + times.lifetime}}.dump() + "\n");
    sleep_seconds(times.settle_time);
    const auto mine = store.read(lease_name);
    if (!mine || parse_lease(*mine).owner != owner) continue;
    const bool absent = !store.read(name);
    if (absent) store.write(name, content);
    store.remove(lease_name);
    return absent;
  }
  return false;
}

}  // namespace qkscope
