// One part of a run of statistics (all of it, or one shard) on its way: the state goes to the disk
// now and then, as a new file, and then a line of the journal says so.
//
//   .parts/00000-of-00001/00000007.seg     which examples came since the segment before
//   .parts/00000-of-00001/00000007.state   everything added up by then; the newest two are kept
//   .parts/00000-of-00001/00000007.docs    groups B and C of those examples
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

class StatsPart {
 public:
  // Goes on from what the journal says. `fresh` is the state of a run that begins.
  StatsPart(Journal& journal, StatsRunState fresh);

  StatsRunState& state() { return state_; }
  bool begins() const { return journal_.entries().empty(); }

  // Examples whose rows are in the state now.
  void add(const PreparedBatch& prepared, std::vector<DocumentRecord> documents);
  // Everything so far is safe.
  void flush();

  std::int64_t examples() const { return done_.examples; }  // earlier runs counted in
  std::int64_t tokens() const { return done_.tokens; }

 private:
  bool due() const;
  void remove_old_states() const;

  Journal& journal_;
  StatsRunState state_;
  std::vector<ExampleRecord> examples_;    // since the last segment
  std::vector<DocumentRecord> documents_;  // of those
  JournalEntry done_;                      // in all
  Clock::time_point saved_ = Clock::now();
};

// What a complete part has added up.
StatsRunState last_state(const Journal& journal);

// Removes files that the journal does not name.
void remove_stray_states(const Journal& journal);

// The examples of all parts one after another, in dataset order. Damage is bad input before the
// first of them.
void for_each_example(const std::vector<Journal>& parts,
                      const std::function<void(const ExampleRecord&)>& take);

// Groups B and C of all parts, in dataset order, one document in memory at a time.
std::unique_ptr<DocumentSource> documents_of(const std::vector<Journal>& parts);

}  // namespace qkscope
