// A run whose data root is filled part by part, one part per shard. PartRun locks the data root,
// resumes the part of an earlier process, publishes the final files and cleans up; captures,
// statistics and any other kind of run supply only how a part is written and how complete parts
// become final files. Folders and object stores work alike (capture/format/stored_run.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/io/file_list.h"
#include "capture/format/data_root.h"
#include "capture/format/journal.h"
#include "qkscope/captures.h"

namespace qkscope {

class StoredRun;
struct StoreAddress;

// Totals over the parts that a call wrote, resumed or merged.
struct PartRunResult {
  RunOutcome outcome = RunOutcome::finished;
  std::int64_t examples = 0;
  std::int64_t rows = 0;
  std::int64_t tokens = 0;
  std::int64_t non_finite = 0;
  double assembly_seconds = 0.0;  // writing and publishing the final files
};

// Writes the final files of complete parts to root.final_folder(); PartRun publishes them.
using AssembleParts = std::function<void(const DataRoot& root, std::vector<Journal> parts)>;

struct PartRun {
  const RunKind& kind;
  std::string data_root;  // a folder or the address of an object store
  FileSnapshot inputs;    // files that the run reads, as they were before the manifest was made
  Manifest manifest;      // identifies the run: a part with another manifest is not resumed
  Shard shard = {};
  bool overwrite = false;
  bool quiet = false;
  // Throws when the inputs cannot be read. Called before an overwrite removes any file.
  std::function<void()> check_inputs;
  // Appends segments to an incomplete part and marks its journal complete after the last example.
  // Returns early when the run is stopped.
  std::function<void(const DataRoot& root, Journal& journal)> write_part;
  AssembleParts assemble;

  // Writes or resumes the part of `shard`. A run without shards also assembles and publishes.
  PartRunResult run() const;

 private:
  PartRunResult run_in_store(const StoreAddress& address) const;
  PartRunResult run_in_folder(const DataRoot& root, StoredRun* stored) const;
  PartRunResult run_locked(const DataRoot& root, StoredRun* stored) const;
};

// Assembles and publishes the parts of a sharded run. Throws a bad-input error that names the
// missing shards unless all parts are complete.
PartRunResult merge_all_parts(const RunKind& kind, const std::string& data_root, bool quiet,
                              const AssembleParts& assemble);

}  // namespace qkscope
