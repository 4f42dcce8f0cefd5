// Published means of the experiment over SmolLM3-3B's training, and ours beside them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "study/overview.h"

namespace qkscope {

// One checkpoint: 300 heads, seed 0. Numbers that were not published are missing.
struct PublishedRun {
  std::string label;
  std::string phase;
  std::map<std::string, double> values;  // by the names of the overview
};

// "smollm3". Another name is bad input that lists the known ones.
const std::vector<PublishedRun>& published_runs(const std::string& name);

struct ComparedRun {
  const PublishedRun* published = nullptr;
  const OverviewRow* ours = nullptr;  // null where this sweep has no such run
};

struct Comparison {
  bool by_label = true;  // false: labels are others, checkpoints were matched by their order
  std::vector<ComparedRun> runs;
};

// Labels decide; where none is shared, a sweep of as many checkpoints is matched by order. Rows
// must outlive the result; those of parts of the layers are passed over.
Comparison compare_with(const std::vector<PublishedRun>& published,
                        const std::vector<OverviewRow>& rows);

}  // namespace qkscope
