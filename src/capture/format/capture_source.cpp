#include "capture/format/capture_source.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/checksum.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "capture/format/layout.h"
#include "capture/format/stored_run.h"
#include "capture/stats_format/stats_file.h"
#include "input/checkpoint/hub_cache.h"
#include "input/hub/client.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

RepositoryName repository_name(const HubCaptureName& capture) {
  return {RepositoryKind::dataset, capture.repo};
}

// Groups heads by folder. An empty `folder` means the root or, if it has no heads, its subfolders.
HeadsByFolder group_heads_by_folder(const std::vector<std::string>& paths,
                                    const std::string& folder) {
  HeadsByFolder heads;
  for (const auto& path : paths) {
    const fs::path file = path;
    const auto name = file.parent_path().filename().string();
    const auto id = parse_head_folder_name(name);
    if (file.filename() != layout::kHeadFile || !id || head_folder_name(*id) != name) continue;
    const auto above = file.parent_path().parent_path().string();
    const bool wanted = folder.empty() ? above.find('/') == std::string::npos : above == folder;
    if (wanted) heads[above].push_back(*id);
  }
  if (heads.contains("")) return {{"", heads[""]}};
  return heads;
}

[[noreturn]] void refuse_empty_capture(const std::vector<std::string>& paths,
                                       const std::string& where) {
  reject(
      "{}: no capture: expected head files such as l00h00q/{}; it holds {}. Captures are often "
      "kept on branches of their own: name one after the @",
      where, layout::kHeadFile, format_name_list(paths));
}

bool is_head_file(const std::string& path) {
  const fs::path file = path;
  return file.filename() == layout::kHeadFile &&
         parse_head_folder_name(file.parent_path().filename().string());
}

// Selects all files of a capture if the repository holds one, else the files of one dataset split.
RemoteFileFilter capture_or_split_filter(const std::string& name, const std::string& split) {
  const auto otherwise = make_dataset_filter(name, split.empty() ? "train" : split);
  const bool whole = name.empty() && split.empty();
  return [whole, otherwise](const std::vector<std::string>& paths, const RemoteFileReader& read,
                            const std::string& where) {
    if (!whole || std::ranges::none_of(paths, is_head_file)) return otherwise(paths, read, where);
    std::vector<std::string> chosen;
    for (const auto& path : paths)
      if (path.find('/') == std::string::npos || is_head_file(path)) chosen.push_back(path);
    return std::optional(chosen);
  };
}

[[noreturn]] void refuse_uncached_revision(const std::string& repo, const std::string& revision) {
  reject(
      "{}@{}: not in the cache, and HF_HUB_OFFLINE forbids to ask the Hub; run 'qkscope hub "
      "download {} --dataset --revision {}' with the network on",
      repo, revision, repo, revision);
}

std::string hash_file(const std::string& path) {
  return fmt::format("{:016x}", blake2b_64(MappedFile(path).text()));
}

// Hashes name, size and last 4 KiB of every head file, to identify a capture without a state file.
std::string hash_head_files(const CaptureIndex& index) {
  constexpr std::size_t kEnd = 4096;
  std::string all;
  for (const auto* heads : {&index.queries, &index.keys})
    for (const auto& head : *heads) {
      const MappedFile file(head_file_path(index.data_root, head));
      const auto text = file.text();
      all += fmt::format("{} {}\n", head_folder_name(head), text.size());
      all += text.substr(text.size() - std::min(kEnd, text.size()));
    }
  return fmt::format("{:016x}", blake2b_64(all));
}

}  // namespace

std::optional<HubCaptureName> parse_hub_capture_name(const std::string& name) {
  const auto at = name.find('@');
  if (path_exists(name) || at == std::string::npos) return {};
  HubCaptureName capture{.repo = name.substr(0, at), .branch = name.substr(at + 1), .folder = ""};
  if (const auto colon = capture.branch.find(':'); colon != std::string::npos) {
    capture.folder = capture.branch.substr(colon + 1);
    capture.branch.resize(colon);
    if (capture.folder.empty())
      reject("{}: no folder after the ':'; expected REPO@BRANCH or REPO@BRANCH:FOLDER", name);
  }
  if (!is_repository_id(capture.repo)) throw_no_such_capture(name);
  if (!is_valid_revision(capture.branch))
    reject("{}: {} is no branch, tag or commit; expected REPO@BRANCH, such as org/name@main", name,
           quote_text(capture.branch));
  return capture;
}

CaptureSource::CaptureSource(const std::string& name, const FetchOptions& options,
                             bool allow_partial)
    : options_(options), allow_partial_(allow_partial) {
  if (const auto address = parse_store_uri(name)) {
    open_stored_capture(*address);
  } else if ((remote_ = parse_hub_capture_name(name))) {
    open_hub_capture(*remote_);
  } else {
    index_ = index_capture(name, allow_partial_);
    name_ = fs::weakly_canonical(index_.data_root).filename().string();
  }
}

void CaptureSource::open_hub_capture(const HubCaptureName& remote) {
  const auto where = remote.repo + "@" + remote.branch;
  const auto choose_state_file = [&](const std::vector<std::string>& paths, const RemoteFileReader&,
                                     const std::string& place) {
    const auto heads = group_heads_by_folder(paths, remote.folder);
    if (heads.empty()) refuse_empty_capture(paths, place);
    const auto folder = require_single_head_folder(heads, where, ":");
    std::vector<std::string> chosen;
    add_path_if_listed(paths, layout::kStateFile, chosen);
    if (!folder.empty()) add_path_if_listed(paths, folder + "/" + layout::kStateFile, chosen);
    return std::optional(chosen);
  };
  const auto snapshot = fetch_repository_snapshot({repository_name(remote), remote.branch, ""},
                                                  choose_state_file, options_);
  if (snapshot.empty()) refuse_uncached_revision(remote.repo, remote.branch);
  name_ = remote.branch == "main" ? fs::path(remote.repo).filename().string() : remote.branch;
  commit_ = fs::path(snapshot).filename().string();
  const auto paths = list_snapshot_files(repository_name(remote), snapshot);
  listed_ = paths.has_value();
  if (!paths) {  // offline and the cache has no listing: index the cached files
    index_ = index_capture(remote.folder.empty() ? snapshot : snapshot + "/" + remote.folder,
                           allow_partial_);
    return;
  }
  auto heads = group_heads_by_folder(*paths, remote.folder);
  const auto folder = require_single_head_folder(heads, where, ":");
  prefix_ = folder.empty() ? "" : folder + "/";
  index_ = make_capture_index(snapshot, folder, std::move(heads[folder]), where, allow_partial_);
}

void CaptureSource::open_stored_capture(const StoreUri& address) {
  stored_ = std::make_shared<const StoredFolder>(open_stored_folder(address));
  const auto where = address.to_string();
  auto heads = group_heads_by_folder(stored_->file_names(), "");
  if (heads.empty()) refuse_empty_capture(stored_->file_names(), where);
  stored_->fetch_files({layout::kStateFile}, true);
  index_ =
      make_capture_index(stored_->local_folder(), "", std::move(heads[""]), where, allow_partial_);
  name_ = address.last_path_component();
}

void CaptureSource::fetch_heads(const std::vector<HeadId>& heads) const {
  if (!stored_ && (!remote_ || !listed_)) return;
  const auto files = to_vector(heads, [&](HeadId head) {
    return prefix_ + head_folder_name(head) + "/" + layout::kHeadFile;
  });
  if (stored_) return stored_->fetch_files(files, options_.quiet);
  const auto choose = [&](const std::vector<std::string>& paths, const RemoteFileReader&,
                          const std::string&) {
    std::vector<std::string> chosen;
    for (const auto& file : files) add_path_if_listed(paths, file, chosen);
    return std::optional(chosen);
  };
  fetch_repository_snapshot({repository_name(*remote_), remote_->branch, commit_}, choose,
                            options_);
}

bool names_capture(const std::string& name) {
  return translate_exceptions([&] {
    const auto check = [&] {
      if (const auto address = parse_store_uri(name))
        return stored_run_kind(*address) == StoredRun::kCapture;
      if (!parse_hub_capture_name(name)) index_capture(name, true);
      return true;
    };
    return value_or_on_bad_input(check, false);
  });
}

std::string fingerprint_capture(const std::string& name) {
  if (const auto address = parse_store_uri(name)) {
    const auto folder = open_stored_folder(*address);
    for (const char* state : {layout::kStateFile, stats_layout::kStateFile}) {
      if (folder.manifest().find_file(state) == nullptr) continue;
      folder.fetch_files({state}, true);
      return hash_file(folder.local_folder() + "/" + state);
    }
    return folder.manifest_hash();
  }
  if (const auto remote = parse_hub_capture_name(name))
    return cached_commit(RepositoryKind::dataset, remote->repo, remote->branch);
  for (const char* state : {layout::kStateFile, stats_layout::kStateFile})
    if (const auto file = name + "/" + state; path_exists(file)) return hash_file(file);
  return is_folder(name) ? hash_head_files(index_capture(name, true)) : "";
}

std::string fetch_dataset_revision(const std::string& id, const std::string& revision,
                                   const std::string& name, const std::string& split,
                                   const FetchOptions& options) {
  return translate_exceptions([&] {
    if (!is_repository_id(id))
      reject("{}: not the id of a dataset on the Hugging Face Hub; expected org/name",
             quote_text(id));
    if (!revision.empty() && !is_valid_revision(revision))
      reject("{}: not a branch, tag or commit", quote_text(revision));
    auto folder = fetch_repository_snapshot({{RepositoryKind::dataset, id}, revision, ""},
                                            capture_or_split_filter(name, split), options);
    if (folder.empty()) refuse_uncached_revision(id, revision.empty() ? "main" : revision);
    return folder;
  });
}

}  // namespace qkscope
