// Implements the downloads and uploads of a sweep in an object store.
#include <filesystem>
#include <utility>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
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

void download_files_into(const StoredFolder& stored, const std::vector<std::string>& names,
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

bool file_has_fingerprint(const std::string& path, const ObjectFingerprint& content) {
  std::error_code none;
  if (fs::file_size(path, none) != content.bytes) return false;
  return checksum_text(checksum_of(MappedFile(path).text())) == content.checksum;
}

}  // namespace

void SweepFolder::delete_downloads(const std::string& label) const {
  if (!store_) return;
  for (const char* what : {"captures/", "statistics/"})
    fs::remove_all(scratch_folder_of_downloads(store_->address.child(what + label)));
}

void SweepFolder::download_sweep_files() const {
  if (!store_) return;
  create_folders();
  const auto lock = lock_tables();
  download_sweep_files_under_lock();
}

void SweepFolder::download_updates(const SweepConfig& config) const {
  if (!store_) return;
  create_folders();
  const auto lock = lock_tables();
  download_updates_under_lock(config);
}

void SweepFolder::download_updates_under_lock(const SweepConfig& config) const {
  if (!store_) return;
  download_sweep_files_under_lock();
  parallel_for(std::ssize(config.runs), [&](std::int64_t i) {
    const auto& label = config.runs[as_index(i)].label;
    if (const auto lock = lock_run(label); lock.is_held()) download_run(label);
  });
}

void SweepFolder::download_sweep_files_under_lock() const {
  const StoredFolder stored(store_->address);
  if (!stored.is_published()) {
    fs::remove(stored_hash_file(path_));
    return;
  }
  if (stored.manifest().kind != kSweepKind)
    bad_input("{}: what is there is of the kind '{}', not a sweep; choose another --out",
              store_->address.to_string(), stored.manifest().kind);
  if (stored.manifest_hash() == read_stored_hash(path_)) return;
  auto names = stored.names();
  std::erase_if(names, is_run_file);
  download_files_into(stored, names, path_);
}

bool SweepFolder::download_run(const std::string& label) const {
  if (!store_) return false;
  const auto folder = results_folder(label);
  const StoredFolder stored(run_address(label));
  const auto recorded = record_run_version(label, stored.manifest_hash());
  const auto last = is_run_in_store(label) ? read_stored_hash(folder) : recorded;
  if (!stored.is_published()) fs::remove(stored_hash_file(folder));
  if (!stored.is_published() || stored.manifest_hash() == last) return false;
  fs::remove_all(folder);
  download_files_into(stored, stored.names(), folder);
  return true;
}

void SweepFolder::upload_run(const std::string& label, bool quiet) const {
  if (!store_ || is_run_in_store(label)) return;
  const auto folder = results_folder(label);
  StoredFolder stored(run_address(label));
  if (!stored.try_publish(
          {.folder = folder, .kind = kResultsKind, .run = make_unique_name(), .quiet = quiet})) {
    download_run(label);
    return;
  }
  write_file(stored_hash_file(folder), stored.manifest_hash());
  record_run_version(label, stored.manifest_hash());
}

bool SweepFolder::is_run_in_store(const std::string& label) const {
  return path_exists(stored_hash_file(results_folder(label)));
}

void SweepFolder::mark_run_changed(const std::string& label) const {
  if (store_) fs::remove(stored_hash_file(results_folder(label)));
}

bool SweepFolder::upload_sweep_files(const SweepConfig& config, bool quiet) const {
  if (!store_) return true;
  StoredFolder stored(store_->address);
  if (stored.manifest_hash() != read_stored_hash(path_)) return false;
  FolderUpload upload{.folder = path_,
                      .kind = kSweepKind,
                      .run = make_unique_name(),
                      .quiet = quiet,
                      .without = "runs",
                      .in_store = {}};
  for (const auto& file : stored.manifest().files)
    if (!is_run_file(file.name) && file_has_fingerprint(path_ + "/" + file.name, file.content))
      upload.in_store.push_back(file);
  for (const SweepRun& of_sweep : config.runs) {
    const auto& label = of_sweep.label;
    if (!is_run_in_store(label)) continue;
    const StoredFolder run(run_address(label));
    if (run.manifest_hash() != read_stored_hash(results_folder(label))) return false;
    const auto prefix = kRuns + label + "/";
    for (const auto& file : run.manifest().files)
      upload.in_store.push_back({prefix + file.name, prefix + file.object, file.content});
  }
  if (!stored.try_publish(upload)) return false;
  write_file(stored_hash_file(path_), stored.manifest_hash());
  return true;
}

std::string SweepFolder::record_run_version(const std::string& label,
                                            const std::string& hash) const {
  const std::lock_guard lock(store_->mutex);
  auto before = std::exchange(store_->versions[label], hash);
  if (before != hash) store_->finished.erase(label);
  return before;
}

}  // namespace qkscope
