#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>

#include "analysis/results/write_results.h"
#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "base/io/file_list.h"
#include "base/io/folder.h"
#include "capture/format/capture_source.h"
#include "capture/format/layout.h"
#include "capture/stats_format/stats_file.h"
#include "qkscope/experimental/verify.h"

namespace qkscope {
namespace {

constexpr std::pair<const char*, const char*> kStateFiles[] = {
    {"capture", layout::kStateFile},
    {"statistics", stats_layout::kStateFile},
    {"results", results_layout::kSummaryFile}};

// Runs `check` on all items in parallel; adds the message of each Error to `found.problems`.
template <typename Items, typename Check>
void check_in_parallel(const Items& items, FolderVerification& found, Check check) {
  std::vector<typename Items::const_pointer> all;
  for (const auto& item : items) all.push_back(&item);
  std::mutex mutex;
  parallel_for(std::ssize(all), [&](std::int64_t i) {
    try {
      check(*all[static_cast<std::size_t>(i)]);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      found.problems.emplace_back(error.what());
    }
  });
  found.files += std::ssize(all);
  std::sort(found.problems.begin(), found.problems.end());
}

void verify_head_files(const std::string& folder, FolderVerification& found) {
  const auto index = index_capture(folder);
  auto heads = index.queries;
  heads.insert(heads.end(), index.keys.begin(), index.keys.end());
  for (const auto& head : heads)
    found.bytes += std::filesystem::file_size(head_file_path(index.data_root, head));
  check_in_parallel(heads, found, [&](const HeadId& head) { read_capture_head(index, head); });
}

}  // namespace

void check_results_complete(const std::string& folder) {
  constexpr char kAdvice[] = "run 'qkscope analyze' again with --overwrite";
  const auto summary = folder + "/" + results_layout::kSummaryFile;
  if (!path_exists(summary)) {
    if (path_exists(folder + "/" + results_layout::kLockFile))
      bad_input(
          "{}: an analysis is writing these results, or was killed; wait until it ends, or {}",
          folder, kAdvice);
    return;
  }
  const Json content = load_json(summary);
  if (const auto files = content.is_object() ? parse_file_list(content, summary) : std::nullopt)
    check_file_sizes(folder, *files, kAdvice);
}

FolderVerification verify_folder(const std::string& folder) {
  return translate_exceptions([&] {
    FolderVerification found;
    std::optional<FileList> files;
    for (const auto& [kind, state_file] : kStateFiles) {
      const auto path = folder + "/" + state_file;
      if (!path_exists(path)) continue;
      found.kind = kind;
      const Json state = load_json(path);
      files = state.is_object() ? parse_file_list(state, path) : std::nullopt;
      break;
    }
    if (found.kind.empty() || (found.kind == "capture" && !files)) {
      found.kind = "capture";
      verify_head_files(folder, found);
      return found;
    }
    if (!files) bad_input("{}: made by version 0.1, without checksums to compare", folder);
    for (const auto& [name, record] : *files) found.bytes += record.size;
    check_in_parallel(*files, found, [&](const auto& file) {
      check_file_content(folder, file.first, file.second, "make it again");
    });
    if (found.kind == "capture" && found.problems.empty()) index_capture(folder);  // foreign heads
    return found;
  });
}

}  // namespace qkscope
