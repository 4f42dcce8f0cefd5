// Progress of the shards of a run that are on disk and not merged yet. A shard is a subset of the
// texts of a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "study/sweep/sweep_config.h"
#include "study/sweep/sweep_folder.h"

namespace qkscope {

// A shard with at least one journal entry.
struct ShardProgress {
  Shard shard;
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  bool complete = false;
  double began = 0;    // start time in seconds since 1970
  double written = 0;  // time of the last journal entry in seconds since 1970
};

// Return the shards of the run's capture and of its statistics, sorted by index, without merged
// shards and shards of another configuration.
std::vector<ShardProgress> capture_shards(const SweepFolder& folder, const SweepRun& run);
std::vector<ShardProgress> statistics_shards(const SweepFolder& folder, const SweepRun& run);

// Returns the number of shards that the run was begun with, 0 if no unmerged shard exists.
std::int64_t begun_shards(const SweepFolder& folder, const SweepRun& run);

}  // namespace qkscope
