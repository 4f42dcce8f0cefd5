#include "study/sweep/sweep_shards.h"

#include <sys/stat.h>

#include "capture/format/data_root.h"
#include "capture/format/journal.h"
#include "capture/format/layout.h"
#include "capture/stats_run/stats_plan.h"
#include "input/store/store_address.h"

namespace qkscope {
namespace {

// Modification time in seconds since 1970, 0 for a missing file.
double written_at(const std::string& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return 0;
  constexpr double kNano = 1e-9;
  return static_cast<double>(status.st_mtim.tv_sec) +
         kNano * static_cast<double>(status.st_mtim.tv_nsec);
}

std::vector<ShardProgress> shards_in(const std::string& folder, const Json& effective) {
  std::vector<ShardProgress> found;
  if (parse_store_address(folder)) return found;  // runs in a store have no shards
  const DataRoot root(folder);
  for (const auto& shard : root.shards()) {
    const auto part = root.part(shard);
    if (!Journal::has_entries(part)) continue;
    const Journal journal(part);
    if (!has_configuration(journal.manifest().identity, effective)) continue;
    found.push_back({.shard = shard,
                     .examples = journal.examples(),
                     .tokens = journal.tokens(),
                     .complete = journal.complete(),
                     .began = written_at(part + "/" + layout::kManifestFile),
                     .written = written_at(part + "/" + layout::kJournalFile)});
  }
  return found;
}

}  // namespace

std::vector<ShardProgress> capture_shards(const SweepFolder& folder, const SweepRun& run) {
  if (folder.captured(run)) return {};
  return shards_in(folder.capture(run.label), effective_config(run.capture));
}

std::vector<ShardProgress> statistics_shards(const SweepFolder& folder, const SweepRun& run) {
  if (folder.measured(run)) return {};
  const auto statistics = folder.statistics(run.label);
  return shards_in(statistics, effective_stats_config(stats_config(run, statistics)));
}

std::int64_t begun_shards(const SweepFolder& folder, const SweepRun& run) {
  auto shards = capture_shards(folder, run);
  if (shards.empty()) shards = statistics_shards(folder, run);
  return shards.empty() ? 0 : shards.front().shard.count;
}

}  // namespace qkscope
