// A run whose data root is the address of an object store. The run works in a local data root and
// uploads complete segments, so that any other machine can resume from the store:
//
//   ADDRESS/parts/run/00000000.json                        the active run: its manifest, number of
//                                                          shards and unique name
//   ADDRESS/parts/RUN/00003-of-00064/00000017-UNIQUE.seg   a segment
//   ADDRESS/parts/RUN/00003-of-00064/00000017.json         the segment's journal line, with names,
//                                                          sizes and checksums of its objects
//   ADDRESS/parts/RUN/00003-of-00064/complete.json         all journal lines of a complete shard
//
// A journal line counts once its object exists. The object is created with put-if-absent: of two
// writers of one shard the first wins, and the other stops and leaves unused segments. Finished
// files become visible through a manifest (input/store/stored_folder.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/io/json.h"
#include "capture/format/data_root.h"
#include "capture/format/journal.h"
#include "input/store/stored_folder.h"

namespace qkscope {

class StoredRun {
 public:
  static constexpr char kCapture[] = "capture";
  static constexpr char kStatistics[] = "statistics";

  StoredRun(const StoreUri& address, std::string kind);

  std::string address() const { return folder_.address().to_string(); }

  // Whether the store holds a finished run. A run of another kind (RunKind) is a bad-input error.
  bool is_finished() const;
  // Throws a bad-input error if the state file of the finished run has a different identity.
  void check_identity_of_finished_run(const Json& identity, const std::string& state_file) const;

  // Whether an unsharded run with this manifest would resume the unfinished run in the store.
  bool can_be_resumed_by(const Manifest& manifest) const;
  // Joins the active run or begins a new one. Throws a bad-input error if the active run has
  // another manifest, kind or shard count. `overwrite` replaces the run and hides finished files.
  void begin_or_join_run(const Manifest& manifest, const Shard& shard, bool overwrite);
  // Joins the active run in order to merge it. Returns false if there is none.
  bool join_active_run();

  // Local working folder of the run; valid after begin_or_join_run() or join_active_run().
  std::string local_root() const { return scratch_folder_for_run(folder_.address(), run_.run); }

  // Makes the local part identical to the part in the store, and uploads local journal lines that a
  // killed process did not upload. Requires the lock of the local part.
  void download_part(const Shard& shard);
  // Downloads all parts for a merge. Throws a bad-input error that names incomplete shards.
  void download_all_parts(const std::string& unit);
  // From now on, uploads every line appended to the journal, together with its files.
  void upload_new_journal_lines(Journal& journal, const Shard& shard);
  // Deletes the local journal of a part that is complete in the store, so that
  // DataRoot::remove_unused_part() deletes the local copy.
  static void delete_journal(const Journal& journal);

  // Uploads the finished files of the local data root, then deletes the root and stored parts.
  void publish_files(bool quiet);
  // Removes the record of an unsharded run that this process began and that stored nothing. The
  // record of a sharded run stays, because another shard may be about to start.
  void remove_unused_run(const Shard& shard);

 private:
  // A journal line in the store and the files it refers to.
  struct StoredJournalLine {
    std::string line;
    std::vector<ManifestEntry> files;
  };

  struct ActiveRun {
    std::size_t number = 0;  // NUMBER of its object parts/run/NUMBER.json
    std::string run;         // unique name of the run
    std::string kind;
    std::int64_t shards = 0;
    std::string manifest;  // content of manifest.json

    NLOHMANN_DEFINE_TYPE_INTRUSIVE(ActiveRun, run, kind, shards, manifest)
  };

  std::optional<ActiveRun> find_active_run() const;
  // Parses the newest object parts/run/NUMBER.json; nullopt if the run is finished or overwritten.
  std::optional<ActiveRun> parse_active_run(const std::optional<VersionedObject>& newest) const;
  void check_same_run(const ActiveRun& active, const Manifest& manifest, const Shard& shard) const;
  std::string part_object_prefix(const Shard& shard) const;
  std::string local_part_folder(const Shard& shard) const {
    return DataRoot(local_root()).part_folder(shard);
  }
  std::vector<StoredJournalLine> read_journal_lines(const Shard& shard) const;
  // Downloads the files of all journal lines except the first `present`, which are already local.
  void fetch_journal_files(const Shard& shard, const std::vector<StoredJournalLine>& records,
                           std::size_t present) const;
  void upload_journal_line(const Shard& shard, const AppendedJournalLine& line);

  StoredFolder folder_;
  std::string kind_;
  ActiveRun run_;
  bool began_run_ = false;                  // this process began the run; false: it joined
  std::vector<StoredJournalLine> records_;  // journal lines of the part that this process writes
};

// Returns the kind of the finished or active run at an address; "" if there is none.
std::string stored_run_kind(const StoreUri& address);

}  // namespace qkscope
