// A run whose data root is an address: the same run in a local data root, and the store gets what
// is whole (captures/stored_run.h).
#pragma once

#include <string>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/io/folder.h"
#include "capture/format/stored_run.h"
#include "qkscope/capture.h"

namespace qkscope {

struct InStore {
  Shard shard;
  bool overwrite = false;
  bool quiet = false;
  std::string state_file;  // there when the local data root is finished
};

// What goes wrong here is less than what went wrong before.
inline void abandon_run(StoredRun& stored, const Shard& shard) {
  try {
    stored.abandon(shard);
  } catch (const Error& error) {
    log::warn("{}", error.what());
  }
}

// `run` does the work in stored.local_root(); Result is that of a capture or of statistics.
template <typename Result, typename RunLocally>
Result run_in_store(StoredRun& stored, const Manifest& manifest, const InStore& options,
                    const RunLocally& run) {
  using Outcome = CaptureResult::Outcome;
  Result result;
  if (!options.overwrite && stored.finished()) {
    stored.check_finished(manifest.identity, options.state_file);
    result.outcome = Outcome::already_finished;
    return result;
  }
  stored.begin(manifest, options.shard, options.overwrite);
  try {
    // Where the files are made already, the process ended before it put them.
    if (!path_exists(stored.local_root() + "/" + options.state_file)) result = run();
    if (result.outcome == Outcome::finished) stored.publish(options.quiet);
  } catch (...) {
    abandon_run(stored, options.shard);
    throw;
  }
  if (result.outcome == Outcome::interrupted) abandon_run(stored, options.shard);
  return result;
}

// `merge` makes the final files in stored.local_root(). `unit`: what the run counts.
template <typename Result, typename MergeLocally>
Result merge_in_store(StoredRun& stored, const std::string& state_file, const std::string& unit,
                      bool quiet, const MergeLocally& merge) {
  Result result;
  if (!stored.join()) {
    if (!stored.finished())
      bad_input("{}: no parts of a run are there; run them with --shard i/n first",
                stored.address());
    result.outcome = CaptureResult::Outcome::already_finished;
    return result;
  }
  if (!path_exists(stored.local_root() + "/" + state_file)) {
    stored.bring_all(unit);
    result = merge();
  }
  stored.publish(quiet);
  return result;
}

}  // namespace qkscope
