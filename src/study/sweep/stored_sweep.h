// A sweep whose results are in an object store. The sweep works in a local folder with the layout
// of a local sweep; captures and statistics have addresses of their own.
//
//   ADDRESS/captures/LABEL, ADDRESS/statistics/LABEL   written by capture and statistics runs
//   ADDRESS/runs/LABEL   stored folder: the results of a run, or the reason of its failure
//   ADDRESS              stored folder: tables, list of runs, figures. Its manifest also lists the
//                        files of runs/, which are not uploaded twice
//
// The hidden file `.stored` in the local folder, and in each runs/LABEL, holds the hash of the
// manifest that was last downloaded or uploaded.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/io/json_fwd.h"
#include "input/store/store_address.h"
#include "input/store/stored_folder.h"

namespace qkscope {

class StoredSweep {
 public:
  explicit StoredSweep(const StoreAddress& address);

  std::string address() const { return address_.to_string(); }
  const std::string& folder() const { return folder_; }  // local working folder
  std::string capture(const std::string& label) const;
  std::string statistics(const std::string& label) const;

  // Return true if the store has a finished capture, or statistics, with this configuration.
  bool has_capture(const std::string& label, const Json& effective) const;
  bool has_statistics(const std::string& label, const Json& effective) const;
  // Returns true if the store has finished statistics of any configuration.
  bool has_statistics(const std::string& label) const;
  // Deletes the local copies of capture and statistics that an analysis downloaded.
  void delete_downloads(const std::string& label) const;

  // Downloads the files of the whole sweep if another machine has uploaded newer ones.
  void download_files() const;
  // Downloads the results of a run if the store has newer ones, and returns true in that case. The
  // caller holds the lock of the run.
  bool download_run(const std::string& label);
  // Uploads the results of a run that the store does not have. If two machines upload at once, one
  // wins and the other downloads the winner's results.
  void upload_run(const std::string& label, bool quiet);
  // Returns true if the local results are those of the store.
  bool has_run(const std::string& label) const;
  // Marks the local results as different from those of the store.
  void mark_changed(const std::string& label) const;
  // Uploads the files of the whole sweep. Returns false if another machine has uploaded files since
  // the last download: the tables must be made again.
  bool upload_files(const std::vector<std::string>& labels, bool quiet) const;

  // Cache of finished runs, which saves requests to the store.
  bool known_finished(const std::string& label) const;
  void keep_finished(const std::string& label);

 private:
  std::string run_folder(const std::string& label) const;
  StoreAddress run_address(const std::string& label) const;
  std::string last_version(const std::string& label) const;
  void record_version(const std::string& label, const std::string& hash);

  StoreAddress address_;
  std::string folder_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> versions_;  // label -> hash of the newest manifest
  std::set<std::string> finished_;
};

}  // namespace qkscope
