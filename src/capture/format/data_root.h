// The output folder of a run: its locks, its parts, and how finished files are moved into it.
// capture/format/layout.h lists the file names. Symbolic links inside the folder are rejected.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/io/folder.h"
#include "base/io/output_file.h"
#include "capture/format/journal.h"
#include "capture/format/layout.h"
#include "qkscope/captures.h"

namespace qkscope {

// A kind of run (capture or statistics): the names of its final files and the wording of messages.
struct RunKind {
  const char* name;        // in the manifest of an object store: "capture", "statistics"
  const char* noun;        // in messages: "a capture", "statistics"
  const char* command;     // the subcommand of qkscope that writes parts
  const char* unit;        // counted in messages: "examples", "documents"
  const char* state_file;  // published last: a folder that has it is finished
  std::span<const char* const> files;    // top-level files besides the state file
  std::span<const char* const> folders;  // top-level folders that are published and removed whole
  // Error messages about a finished folder; placeholders: {root}, {state_file} and {difference}.
  const char* no_configuration;  // the state file does not say which run wrote the folder
  const char* other_run;         // another run wrote the folder
};

extern const RunKind kCaptureRun;

// Exclusive or shared write lock on a data root.
struct DataRootLock {
  std::vector<FileLock> files;
  std::string made;  // the outermost folder that lock() created; "" when all existed
};

class DataRoot {
 public:
  explicit DataRoot(std::string path, const RunKind& kind = kCaptureRun);

  const std::string& path() const { return path_; }
  std::string parts_folder() const { return path_ + "/" + layout::kPartsFolder; }
  std::string part_folder(const Shard& shard) const {
    return parts_folder() + "/" + part_name(shard);
  }
  std::string final_folder() const { return parts_folder() + "/" + layout::kFinalFolder; }
  std::string state_file() const { return path_ + "/" + kind_->state_file; }

  // Locks the part of one shard. Shards of one run may write at the same time; a run without shards
  // and a merge lock the whole root. Throws a bad-input error when another process holds the lock.
  DataRootLock lock(const Shard& shard) const;
  DataRootLock lock_whole_root() const;

  // Throws a bad-input error if a published file or a file in a part is a symbolic link. If `own`
  // is set, skips the parts of other shards: startup cost must not grow with the shard count.
  void check_no_symbolic_links(const std::optional<Shard>& own = {}) const;

  // Whether the run is finished: its state file, which is published last, exists.
  bool is_finished() const { return path_exists(state_file()); }
  // Whether the folder holds a finished run of this configuration, on any device or commit.
  bool is_finished_with_config(const Json& effective) const;
  // Whether the folder holds an unfinished run that a run with this manifest would resume.
  bool can_be_resumed_by(const Manifest& manifest) const;
  // Throws a bad-input error that describes how the finished run differs from `identity`.
  void check_identity_of_finished_run(const Json& identity) const;

  // Returns the shards that have a part with a manifest, in ascending order.
  std::vector<Shard> list_started_shards() const;

  // Opens the shard's part: resumes it when it has journal entries of this run, else creates it.
  // The other parts must belong to the same run and number of shards. Only the first few manifests
  // are compared here; a merge compares all. Head files without parts are refused as foreign.
  Journal open_part(const Manifest& manifest, const Shard& shard) const;
  // Removes the shard's part if its journal is empty, then empty folders that `lock` created.
  void remove_unused_part(const Shard& shard, const DataRootLock& lock) const;

  // Refuses to overwrite files that this program did not write: if files exist at the output paths
  // without a state file or a part with journal entries, throws a bad-input error that lists them.
  void check_no_foreign_files() const;
  // Removes the finished files, the shard's own part, and parts of other runs that no process has
  // locked. Files with unrecognized names are kept.
  void remove_run_files(const Manifest& manifest, const Shard& shard) const;
  // Whether remove_run_files() has begun and the new run is not finished. Files at the output paths
  // then belong to the old run, or to an interrupted publication of the new run.
  bool is_being_replaced() const {
    return !is_finished() && path_exists(parts_folder() + "/" + kind_->state_file);
  }
  // Removes files at the output paths; keeps the parts (intermediate files of unfinished runs).
  void remove_finished_files() const;

  // Deletes leftovers of an earlier assembly and creates an empty final_folder().
  void make_final_folder() const;
  // Moves the files in final_folder() to the root, the state file last and only after all other
  // files are synced to disk, then removes the parts. Requires the lock of the whole root.
  void move_final_files_to_root() const;
  // Removes the parts of a finished run that was killed between publishing and cleanup.
  void remove_leftover_parts() const;

 private:
  void remove_parts() const;
  std::vector<std::string> existing_run_files() const;  // files and folders at the output paths
  void check_other_parts_match(const Manifest& manifest, const Shard& shard) const;
  std::vector<Shard> list_part_shards() const;  // ascending; with or without a manifest
  FileLock lock_folder(const std::string& folder, FileLock::LockMode mode) const;
  void remove_part(const FolderHandle& parts, const Shard& shard) const;

  std::string path_;
  const RunKind* kind_;
};

// Whether every field of an effective configuration has the same value in a run's identity. Other
// fields of the identity (device, commits, input fingerprints) are ignored.
bool identity_matches_config(const Json& identity, const Json& effective);

// Throws a bad-input error that lists up to twelve missing shards.
[[noreturn]] void throw_missing_shards(const std::string& where, std::vector<std::string> missing);

}  // namespace qkscope
