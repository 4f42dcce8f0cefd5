// Published numbers, read from the data folder, and ours beside them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "qkscope/study.h"

namespace qkscope {

// One checkpoint. Numbers that were not published are missing.
struct PublishedRun {
  std::string label;
  std::string phase;
  std::map<std::string, double> values;  // by the measures of the overview
};

// published/NAME.csv of the first data folder that has it (share/published/README.md describes the
// columns), in the order of the file. A name that is not there is bad input that lists those that
// are; a bad row is one that names the file and the row.
std::vector<PublishedRun> read_published(const std::string& name);

struct ComparedRun {
  const PublishedRun* published = nullptr;
  const OverviewRow* ours = nullptr;  // null where this sweep has no such run
};

struct Comparison {
  bool by_label = true;  // false: labels are others, checkpoints were matched by their order
  std::vector<ComparedRun> runs;
};

// Labels decide; where none is shared, a sweep of as many checkpoints is matched by order. Both
// arguments must outlive the result. Rows of a part of the layers are passed over.
Comparison match_runs(const std::vector<PublishedRun>& published,
                      const std::vector<OverviewRow>& rows);

}  // namespace qkscope
