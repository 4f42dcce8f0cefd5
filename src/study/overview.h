// The story of a sweep in one small table: means over heads per run, RoPE and NoPE layers apart.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "qkscope/tables.h"
#include "study/sweep_folder.h"

namespace qkscope {

// What an overview shows of a run's summary, in the order of its columns.
struct OverviewMeasure {
  const char* name;     // of the column
  const char* section;  // of summary.json
  const char* key;      // in it
  const char* field;    // "mean" or "fraction"
};
const std::vector<OverviewMeasure>& overview_measures();

struct OverviewRow {
  std::string label;
  std::string phase;
  std::int64_t order = 0;
  std::string layers;  // all, rope, nope or unknown
  std::int64_t heads = 0;
  std::map<std::string, double> values;  // by name; what the run did not measure is missing

  double value(const std::string& name) const;  // NaN where it is missing
};

// Of the finished ones among `runs`: for each, all layers, then rope and nope where it has both.
std::vector<OverviewRow> read_overview(const SweepFolder& folder,
                                       const std::vector<RunEntry>& runs);

// overview.csv
Table overview_table(const std::vector<OverviewRow>& rows);

}  // namespace qkscope
