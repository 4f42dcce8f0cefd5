// The output folder of statistics: whether it is finished, and how its files come into it. Parts
// and locks are those of captures (captures/data_root.h).
#pragma once

#include <functional>
#include <string>

#include "capture/format/data_root.h"
#include "capture/format/examples.h"
#include "qkscope/statistics.h"

namespace qkscope {

class StatsFolder {
 public:
  explicit StatsFolder(const std::string& path);

  const DataRoot& root() const { return root_; }
  bool finished() const;
  // Finished statistics with this configuration.
  bool holds(const Json& effective) const;
  // The finished statistics must be of this identity; else bad input that says what differs.
  void check_finished(const Json& identity) const;
  // A capture and statistics do not share a folder.
  void refuse_capture() const;

  // The files of finished statistics, and the parts of a run that is not going on.
  void remove_statistics(const Manifest& manifest, const Shard& shard) const;

  // Parts that a kill after the last file was there left behind.
  void remove_left_parts() const;

  // Writes everything beside the folder and moves it there, the state file last. `add_examples`
  // appends the examples in order.
  void publish(const Statistics& statistics, DocumentSource& documents,
               const std::function<void(ExamplesWriter&)>& add_examples) const;

 private:
  std::string state_file() const;

  DataRoot root_;
};

}  // namespace qkscope
