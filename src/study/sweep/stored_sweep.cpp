#include <filesystem>
#include <utility>

#include "base/core/error.h"
#include "base/io/checksum.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "input/store/store_address.h"
#include "input/store/stored_folder.h"
#include "study/sweep/sweep_folder.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr char kRuns[] = "runs/";
constexpr char kSweepKind[] = "sweep";
constexpr char kResultsKind[] = "results";

// The file `.stored` contains the hash of the manifest that matches the local folder.
std::string stored_hash_file(const std::string& folder) {
  return folder + "/.stored";
}

std::string read_stored_hash(const std::string& folder) {
  const auto file = stored_hash_file(folder);
  return path_exists(file) ? std::string(MappedFile(file).text()) : "";
}

void download(const StoredFolder& stored, const std::vector<std::string>& names,
              const std::string& folder) {
  stored.fetch(names, true);
  for (const auto& name : names) {
    const auto to = folder + "/" + name;
    make_folders(parent_folder(to));
    fs::copy_file(stored.local_folder() + "/" + name, to, fs::copy_options::overwrite_existing);
  }
  write_file(stored_hash_file(folder), stored.manifest_hash());
}

bool is_run_file(const std::string& name) {
  return name.starts_with(kRuns);
}

bool matches_content(const std::string& path, const ObjectFingerprint& content) {
  std::error_code none;
  if (fs::file_size(path, none) != content.bytes) return false;
  return checksum_text(checksum_of(MappedFile(path).text())) == content.checksum;
}

}  // namespace

StoredSweep::StoredSweep(const StoreAddress& address)
    : address_(address), folder_(scratch_folder_of_sweep(address)) {}

std::string StoredSweep::run_folder(const std::string& label) const {
  return folder_ + "/" + kRuns + label;
}

StoreAddress StoredSweep::run_address(const std::string& label) const {
  return address_.child(kRuns + label);
}

void StoredSweep::delete_downloads(const std::string& label) const {
  for (const char* what : {"captures/", "statistics/"})
    fs::remove_all(scratch_folder_of_downloads(address_.child(what + label)));
}

void StoredSweep::download_sweep_files() const {
  const StoredFolder stored(address_);
  if (!stored.is_published()) {
    fs::remove(stored_hash_file(folder_));
    return;
  }
  if (stored.manifest().kind != kSweepKind)
    bad_input("{}: what is there is of the kind '{}', not a sweep; choose another --out",
              address_.to_string(), stored.manifest().kind);
  if (stored.manifest_hash() == read_stored_hash(folder_)) return;
  auto names = stored.names();
  std::erase_if(names, is_run_file);
  download(stored, names, folder_);
}

bool StoredSweep::download_run(const std::string& label) {
  const auto folder = run_folder(label);
  const StoredFolder stored(run_address(label));
  const auto recorded = record_run_version(label, stored.manifest_hash());
  const auto last = has_run(label) ? read_stored_hash(folder) : recorded;
  if (!stored.is_published()) fs::remove(stored_hash_file(folder));
  if (!stored.is_published() || stored.manifest_hash() == last) return false;
  fs::remove_all(folder);
  download(stored, stored.names(), folder);
  return true;
}

void StoredSweep::upload_run(const std::string& label, bool quiet) {
  const auto folder = run_folder(label);
  if (has_run(label)) return;
  StoredFolder stored(run_address(label));
  if (!stored.try_publish(
          {.folder = folder, .kind = kResultsKind, .run = make_unique_name(), .quiet = quiet})) {
    download_run(label);
    return;
  }
  write_file(stored_hash_file(folder), stored.manifest_hash());
  record_run_version(label, stored.manifest_hash());
}

bool StoredSweep::has_run(const std::string& label) const {
  return path_exists(stored_hash_file(run_folder(label)));
}

void StoredSweep::mark_run_changed(const std::string& label) const {
  fs::remove(stored_hash_file(run_folder(label)));
}

bool StoredSweep::upload_sweep_files(const std::vector<std::string>& labels, bool quiet) const {
  StoredFolder stored(address_);
  if (stored.manifest_hash() != read_stored_hash(folder_)) return false;
  FolderUpload upload{.folder = folder_,
                      .kind = kSweepKind,
                      .run = make_unique_name(),
                      .quiet = quiet,
                      .without = "runs",
                      .in_store = {}};
  for (const auto& file : stored.manifest().files)
    if (!is_run_file(file.name) && matches_content(folder_ + "/" + file.name, file.content))
      upload.in_store.push_back(file);
  for (const auto& label : labels) {
    if (!has_run(label)) continue;
    const StoredFolder run(run_address(label));
    if (run.manifest_hash() != read_stored_hash(run_folder(label))) return false;
    const auto prefix = kRuns + label + "/";
    for (const auto& file : run.manifest().files)
      upload.in_store.push_back({prefix + file.name, prefix + file.object, file.content});
  }
  if (!stored.try_publish(upload)) return false;
  write_file(stored_hash_file(folder_), stored.manifest_hash());
  return true;
}

bool StoredSweep::is_marked_finished(const std::string& label) const {
  const std::lock_guard lock(mutex_);
  return finished_.contains(label);
}

void StoredSweep::record_finished(const std::string& label) {
  const std::lock_guard lock(mutex_);
  finished_.insert(label);
}

std::string StoredSweep::record_run_version(const std::string& label, const std::string& hash) {
  const std::lock_guard lock(mutex_);
  auto before = std::exchange(versions_[label], hash);
  if (before != hash) finished_.erase(label);
  return before;
}

}  // namespace qkscope
