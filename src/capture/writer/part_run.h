// Runs that fill a data root part by part, one part per shard. ShardRun locks the data root,
// resumes the part of an earlier process, publishes the final files and cleans up; captures,
// statistics and any other kind of run supply only how a part is written and how complete parts
// become final files. Folders and object stores work alike (capture/format/stored_run.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/file_list.h"
#include "capture/format/data_root.h"
#include "capture/format/journal.h"
#include "qkscope/capture.h"
#include "qkscope/captures.h"

namespace qkscope {

class StoredRun;

// Result with the outcome, totals over all parts and assembly_seconds; callers add the other times.
using ShardRunResult = CaptureResult;

// Writes the final files of complete parts to root.final_folder(). The caller publishes them.
using PartAssembler = std::function<void(const DataRoot& root, std::vector<Journal> parts)>;

struct ShardRunOptions {
  const RunKind& kind;
  std::string data_root;  // a folder or the address of an object store
  FileSnapshot inputs;    // files that the run reads, as they were before the manifest was made
  Manifest manifest;      // identifies the run: a part with another manifest is not resumed
  Shard shard = {};
  bool overwrite = false;
  bool quiet = false;
  // Throws if the inputs cannot be read. Called before --overwrite removes any file.
  std::function<void()> check_inputs;
};

// Manages a part of a run from locking the folder to publishing the files. The caller appends
// segments to an open part and marks its journal complete after the last example.
class ShardRun {
 public:
  // Locks the data root and opens the part, or detects that the run is already finished.
  explicit ShardRun(ShardRunOptions run);
  // Unless finish() was called, removes a part without journal entries; other parts can be resumed.
  ~ShardRun();

  // Whether examples are still missing; false for a finished run or a complete part.
  bool is_open() const { return journal_ && !journal_->is_complete(); }
  // Folder and journal of the part; valid only if is_open().
  const DataRoot& root() const { return *root_; }
  Journal& journal() { return *journal_; }

  // If the part is complete and the run has no shards, assembles and publishes the final files.
  // Returns RunOutcome::interrupted for an incomplete part.
  ShardRunResult finish(const PartAssembler& assemble);

 private:
  struct DeferOpenTag {};
  ShardRun(ShardRunOptions run, DeferOpenTag);
  void open();
  void open_local_part();

  ShardRunOptions run_;
  std::unique_ptr<StoredRun> stored_;  // null if the data root is a folder
  std::optional<DataRoot> root_;
  std::optional<DataRootLock> lock_;
  std::optional<Journal> journal_;
  bool already_finished_ = false;
  bool ended_ = false;  // finish() has returned
};

// Assembles and publishes the parts of a sharded run. Throws a bad-input error that names the
// missing or incomplete shards, if any.
ShardRunResult merge_all_parts(const RunKind& kind, const std::string& data_root, bool quiet,
                               const PartAssembler& assemble);

}  // namespace qkscope
