// The shards that the texts of a sweep's run are dealt to, as they lie on the disk until they are
// merged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "study/sweep/sweep_config.h"
#include "study/sweep/sweep_folder.h"

namespace qkscope {

// One that something was stored of.
struct ShardProgress {
  Shard shard;
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  bool complete = false;
  double began = 0;    // seconds since 1970
  double written = 0;  // when its journal grew last; the same
};

// Of the run's capture, and of its statistics, by index; those of another configuration are left
// out, and so is everything that is merged.
std::vector<ShardProgress> capture_shards(const SweepFolder& folder, const SweepRun& run);
std::vector<ShardProgress> statistics_shards(const SweepFolder& folder, const SweepRun& run);

// In how many shards the texts of a run were begun and not merged yet; 0: in none.
std::int64_t begun_shards(const SweepFolder& folder, const SweepRun& run);

}  // namespace qkscope
