// A run whose data root is an address of an object store. The work is done in a data root on this
// machine; the store gets what is whole, and any other machine can go on from there:
//
//   ADDRESS/parts/run/00000000.json                         which run is going on: its manifest,
//                                                           number of shards and unique name
//   ADDRESS/parts/RUN/00003-of-00064/00000017-UNIQUE.seg    a segment
//   ADDRESS/parts/RUN/00003-of-00064/00000017.json          its line of the journal, with the
//   names,
//                                                           sizes and checksums of its objects
//   ADDRESS/parts/RUN/00003-of-00064/complete.json          all of them, when the shard is done
//
// A line counts when its object is there, and of two who write the same shard one puts it: the
// other stops, and its segments are garbage. What is finished becomes visible by a manifest
// (store/stored_folder.h).
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

  StoredRun(const StoreAddress& address, std::string kind);

  std::string address() const { return folder_.address().to_string(); }

  // Whether something finished is there; of another kind is bad input.
  bool finished() const;
  // What is finished there must be of this identity; `state_file` says what it is.
  void check_finished(const Json& identity, const std::string& state_file) const;

  // Whether an unfinished run is there that one of this manifest, in one shard, would go on with.
  bool continues(const Manifest& manifest) const;
  // Joins the run that is going on there, or begins one. A run that this one is no part of is bad
  // input, unless it is to be overwritten; then what is finished is hidden too.
  void begin(const Manifest& manifest, const Shard& shard, bool overwrite);
  // For a merge: whatever run is going on. False where there is none.
  bool join();

  // The data root on this machine, after begin() or join().
  std::string local_root() const;

  // With the lock of the local part: makes it what the store has of it. Lines that only this
  // machine has, because it was killed before it put them, are put now.
  void bring(const Shard& shard);
  // All parts, for a merge. Shards that are not complete are bad input.
  void bring_all(const std::string& unit);
  // From now on every line of the local part's journal goes to the store with its files.
  void follow(Journal& journal, const Shard& shard);
  // Before the local copy of a part that is complete in the store is removed.
  static void forget(const Journal& journal);

  // Puts the finished files of the local data root; then the parts, here and there, go.
  void publish(bool quiet);
  // A run that stored nothing leaves nothing. Of a run in shards others may be about to begin.
  void abandon(const Shard& shard);

 private:
  // A line of a part's journal as the store has it.
  struct Record {
    std::string line;
    std::vector<StoredFile> files;
  };

  struct Going {
    std::size_t number = 0;
    std::string run;
    std::string kind;
    std::int64_t shards = 0;
    std::string manifest;  // the text of manifest.json
  };

  std::optional<Going> newest_run() const;
  void check_same(const Going& going, const Manifest& manifest, const Shard& shard) const;
  std::string prefix(const Shard& shard) const;
  std::string local_part(const Shard& shard) const;
  std::vector<Record> read_records(const Shard& shard) const;
  void fetch_records(const Shard& shard, const std::vector<Record>& records,
                     std::size_t there) const;
  void put_line(const Shard& shard, const JournalLine& line);
  [[noreturn]] void lost(const Shard& shard) const;

  StoredFolder folder_;
  std::string kind_;
  Going going_;
  std::vector<Record> records_;  // of the part that is followed
};

// The kind of what is at an address, finished or going on; "" where nothing is.
std::string stored_kind(const StoreAddress& address);

}  // namespace qkscope
