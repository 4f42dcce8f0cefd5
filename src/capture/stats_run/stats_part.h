// Writes one part of a run of statistics: the whole run, or one shard. Each journal line refers to
// three files:
//
//   .parts/00000-of-00001/00000007.seg     examples since the previous segment
//   .parts/00000-of-00001/00000007.state   all sums so far; only the newest two are kept
//   .parts/00000-of-00001/00000007.docs    attention per document (groups B and C) of the segment
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/core/clock.h"
#include "capture/format/examples.h"
#include "capture/format/journal.h"
#include "capture/stats_run/run_state.h"
#include "capture/stats_run/stats_pass.h"

namespace qkscope {

class StatsPartWriter {
 public:
  // Resumes from the journal, or starts from the state `fresh`.
  StatsPartWriter(Journal& journal, StatsRunState fresh);

  StatsRunState& state() { return state_; }
  bool has_no_segments() const { return journal_.entries().empty(); }

  // Adds the examples of a batch. state() must already include the sums of this batch.
  void add_batch(const PreparedBatch& prepared, std::vector<DocumentRecord> documents);
  // Stores everything so far on disk.
  void flush();

  std::int64_t examples() const { return done_.examples; }  // including resumed ones
  std::int64_t tokens() const { return done_.tokens; }

 private:
  Journal& journal_;
  StatsRunState state_;
  std::vector<ExampleRecord> examples_;    // since the last segment
  std::vector<DocumentRecord> documents_;  // since the last segment
  JournalEntry done_;                      // counts of the part
  Clock::time_point saved_ = Clock::now();
};

StatsRunState load_last_stats_state(const Journal& journal);

// Visits the examples of all parts in dataset order, after checking all parts for damage.
void for_each_example(const std::vector<Journal>& parts,
                      const std::function<void(const ExampleRecord&)>& take);

// Reads the per-document attention of all parts in dataset order, one document at a time.
std::unique_ptr<DocumentSource> open_part_documents(const std::vector<Journal>& parts);

}  // namespace qkscope
