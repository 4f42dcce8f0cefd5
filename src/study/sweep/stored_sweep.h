// A sweep whose results are in an object store. It works in a folder on this machine, which is what
// the folder of a local sweep would be; captures and statistics go to addresses of their own.
//
//   ADDRESS/captures/LABEL, ADDRESS/statistics/LABEL   as runs with an address put them
//   ADDRESS/runs/LABEL                                 a stored folder: the results of a run, or
//   why
//                                                      it failed
//   ADDRESS                                            a stored folder: tables, list of runs,
//                                                      figures. Its manifest names the files of
//                                                      runs/ too, without putting them again
//
// Hidden files `.stored` in the working folder, and in runs/LABEL of it, say which manifest was
// brought or put last.
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
  const std::string& folder() const { return folder_; }  // on this machine
  std::string capture(const std::string& label) const;
  std::string statistics(const std::string& label) const;

  // Whether a finished one with this configuration is there.
  bool has_capture(const std::string& label, const Json& effective) const;
  bool has_statistics(const std::string& label, const Json& effective) const;
  // Whether finished statistics are there, of whatever configuration.
  bool has_statistics(const std::string& label) const;
  // What was fetched of both for an analysis leaves this machine.
  void forget_fetched(const std::string& label) const;

  // The files of the whole sweep, where another one put them since they were brought or put here.
  void bring_files() const;
  // The same of a run's results; true where there were others. Whoever calls has the run's lock.
  bool bring_run(const std::string& label);
  // Where the store has not got them. Of two who put them at once one does, and both have those.
  void put_run(const std::string& label, bool quiet);
  // Whether the results on this machine are those of the store; not after changes_run().
  bool has_run(const std::string& label) const;
  void changes_run(const std::string& label) const;
  // The files of the whole sweep. False where another one put some, or a run's, since they were
  // brought: they are to be made again.
  bool put_files(const std::vector<std::string>& labels, bool quiet) const;

  // Runs that were found finished: nobody needs to ask the store again.
  bool known_finished(const std::string& label) const;
  void keep_finished(const std::string& label);

 private:
  std::string run_folder(const std::string& label) const;
  StoreAddress run_address(const std::string& label) const;
  std::string seen(const std::string& label) const;
  void saw(const std::string& label, const std::string& hash);

  StoreAddress address_;
  std::string folder_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> seen_;  // the newest manifest of runs, by label
  std::set<std::string> finished_;
};

}  // namespace qkscope
