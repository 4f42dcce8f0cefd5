// A run whose data root is filled part by part, one part per shard. PartRun locks the data root,
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

// Outcome, totals over the parts of the run, and assembly_seconds. Callers measure the other times.
using PartRunResult = CaptureResult;

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
  // Throws if the inputs cannot be read. Called before --overwrite removes any file.
  std::function<void()> check_inputs;
};

// Manages a part of a run from locking the folder to publishing the files. The caller appends
// segments to an open part and marks its journal complete after the last example.
class PartSession {
 public:
  // Locks the data root and opens the part, or detects that the run is already finished.
  explicit PartSession(PartRun run);
  // Unless finish() was called, removes a part without journal entries; other parts can be resumed.
  ~PartSession();

  // Whether examples are still missing; false for a finished run or a complete part.
  bool is_open() const { return journal_ && !journal_->is_complete(); }
  // Folder and journal of the part; valid only if is_open().
  const DataRoot& root() const { return *root_; }
  Journal& journal() { return *journal_; }

  // If the part is complete and the run has no shards, assembles and publishes the final files.
  // Returns RunOutcome::interrupted for an incomplete part.
  PartRunResult finish(const AssembleParts& assemble);

 private:
  struct UnopenedTag {};
  PartSession(PartRun run, UnopenedTag);
  void open();
  void open_folder();

  PartRun run_;
  std::unique_ptr<StoredRun> stored_;  // null if the data root is a folder
  std::optional<DataRoot> root_;
  std::optional<DataRootLock> lock_;
  std::optional<Journal> journal_;
  bool already_finished_ = false;
  bool ended_ = false;  // finish() has returned
};

// Assembles and publishes the parts of a sharded run. Missing and incomplete shards are a bad-input
// error that names them.
PartRunResult merge_all_parts(const RunKind& kind, const std::string& data_root, bool quiet,
                              const AssembleParts& assemble);

}  // namespace qkscope
