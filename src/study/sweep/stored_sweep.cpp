#include "study/sweep/stored_sweep.h"

#include <filesystem>
#include <utility>

#include "base/core/error.h"
#include "base/io/checksum.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "capture/format/data_root.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "capture/stats_format/stats_file.h"
#include "input/store/store_address.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr char kCaptures[] = "captures/";
constexpr char kStatistics[] = "statistics/";
constexpr char kRuns[] = "runs";
constexpr char kKind[] = "sweep";
constexpr char kKindOfRun[] = "results";

// The file .stored holds the hash of the manifest that a local folder corresponds to.

std::string mark_file(const std::string& folder) {
  return folder + "/.stored";
}

std::string mark_of(const std::string& folder) {
  const auto file = mark_file(folder);
  return path_exists(file) ? std::string(MappedFile(file).text()) : "";
}

void mark(const std::string& folder, const std::string& hash) {
  write_file(mark_file(folder), hash);
}

void unmark(const std::string& folder) {
  fs::remove(mark_file(folder));
}

// Downloads files of a stored folder into a local folder.
void download(const StoredFolder& stored, const std::vector<std::string>& names,
              const std::string& folder) {
  stored.fetch(names, true);
  for (const auto& name : names) {
    const auto to = folder + "/" + name;
    make_folders(parent_folder(to));
    fs::copy_file(stored.local_folder() + "/" + name, to, fs::copy_options::overwrite_existing);
  }
  mark(folder, stored.hash());
}

bool is_of_run(const std::string& name) {
  return name.starts_with(std::string(kRuns) + "/");
}

bool is_same(const std::string& path, const ObjectContent& content) {
  std::error_code none;
  if (fs::file_size(path, none) != content.bytes) return false;
  return checksum_text(checksum_of(MappedFile(path).text())) == content.checksum;
}

bool holds(const StoreAddress& address, const std::string& state_file, const Json& effective) {
  const StoredFolder stored(address);
  if (!stored.is_published() || stored.manifest().find(state_file) == nullptr) return false;
  stored.fetch({state_file}, true);
  const Json state = load_json(stored.local_folder() + "/" + state_file);
  return state.is_object() &&
         has_configuration(state.value(metadata::kStateConfiguration, Json()), effective);
}

}  // namespace

StoredSweep::StoredSweep(const StoreAddress& address)
    : address_(address), folder_(sweep_scratch_folder(address)) {}

std::string StoredSweep::capture(const std::string& label) const {
  return address_.below(kCaptures + label).to_string();
}

std::string StoredSweep::statistics(const std::string& label) const {
  return address_.below(kStatistics + label).to_string();
}

std::string StoredSweep::run_folder(const std::string& label) const {
  return folder_ + "/" + kRuns + "/" + label;
}

StoreAddress StoredSweep::run_address(const std::string& label) const {
  return address_.below(std::string(kRuns) + "/" + label);
}

bool StoredSweep::has_capture(const std::string& label, const Json& effective) const {
  return holds(address_.below(kCaptures + label), layout::kStateFile, effective);
}

bool StoredSweep::has_statistics(const std::string& label, const Json& effective) const {
  return holds(address_.below(kStatistics + label), stats_layout::kStateFile, effective);
}

bool StoredSweep::has_statistics(const std::string& label) const {
  return StoredFolder(address_.below(kStatistics + label)).is_published();
}

void StoredSweep::delete_downloads(const std::string& label) const {
  for (const char* what : {kCaptures, kStatistics})
    fs::remove_all(fetched_scratch_folder(address_.below(what + label)));
}

void StoredSweep::download_files() const {
  const StoredFolder stored(address_);
  if (!stored.is_published()) return unmark(folder_);
  if (stored.manifest().kind != kKind)
    bad_input("{}: what is there is of the kind '{}', not a sweep; choose another --out", address(),
              stored.manifest().kind);
  if (stored.hash() == mark_of(folder_)) return;
  auto names = stored.names();
  std::erase_if(names, is_of_run);
  download(stored, names, folder_);
}

bool StoredSweep::download_run(const std::string& label) {
  const auto folder = run_folder(label);
  const StoredFolder stored(run_address(label));
  const auto last = has_run(label) ? mark_of(folder) : last_version(label);
  record_version(label, stored.hash());
  if (!stored.is_published()) unmark(folder);
  if (!stored.is_published() || stored.hash() == last) return false;
  fs::remove_all(folder);
  download(stored, stored.names(), folder);
  return true;
}

void StoredSweep::upload_run(const std::string& label, bool quiet) {
  const auto folder = run_folder(label);
  if (has_run(label)) return;
  StoredFolder stored(run_address(label));
  if (!stored.try_publish(
          {.folder = folder, .kind = kKindOfRun, .run = unique_name(), .quiet = quiet})) {
    download_run(label);
    return;
  }
  mark(folder, stored.hash());
  record_version(label, stored.hash());
}

bool StoredSweep::has_run(const std::string& label) const {
  return path_exists(mark_file(run_folder(label)));
}

void StoredSweep::mark_changed(const std::string& label) const {
  unmark(run_folder(label));
}

bool StoredSweep::upload_files(const std::vector<std::string>& labels, bool quiet) const {
  StoredFolder stored(address_);
  if (stored.hash() != mark_of(folder_)) return false;
  FolderUpload upload{.folder = folder_,
                      .kind = kKind,
                      .run = unique_name(),
                      .quiet = quiet,
                      .without = kRuns,
                      .in_store = {}};
  for (const auto& file : stored.manifest().files)
    if (!is_of_run(file.name) && is_same(folder_ + "/" + file.name, file.content))
      upload.in_store.push_back(file);
  for (const auto& label : labels) {
    if (!has_run(label)) continue;
    const StoredFolder run(run_address(label));
    if (run.hash() != mark_of(run_folder(label))) return false;
    const auto prefix = std::string(kRuns) + "/" + label + "/";
    for (const auto& file : run.manifest().files)
      upload.in_store.push_back({prefix + file.name, prefix + file.object, file.content});
  }
  if (!stored.try_publish(upload)) return false;
  mark(folder_, stored.hash());
  return true;
}

bool StoredSweep::known_finished(const std::string& label) const {
  const std::lock_guard lock(mutex_);
  return finished_.contains(label);
}

void StoredSweep::keep_finished(const std::string& label) {
  const std::lock_guard lock(mutex_);
  finished_.insert(label);
}

std::string StoredSweep::last_version(const std::string& label) const {
  const std::lock_guard lock(mutex_);
  const auto found = versions_.find(label);
  return found == versions_.end() ? "" : found->second;
}

void StoredSweep::record_version(const std::string& label, const std::string& hash) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(versions_[label], hash) != hash) finished_.erase(label);
}

}  // namespace qkscope
