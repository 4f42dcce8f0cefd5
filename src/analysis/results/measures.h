// The numbers of a head whose means over heads a summary gives.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "qkscope/analysis.h"

namespace qkscope {

// One number per head, NaN where the head has none.
struct Measure {
  const char* name;  // in summary.json
  std::function<double(const HeadReport&)> of;
  bool median = false;           // over heads, for ratios that a few heads would decide
  bool error = true;             // whether replicates of a head have it
  const char* column = nullptr;  // in an overview, where it has another name

  std::string quantity() const { return column ? column : name; }
  double centre(std::vector<double> values) const;  // mean or median
};

std::vector<Measure> pca_measures();
std::vector<Measure> class_measures(const TaxonomyOptions& options);  // shares of heads
std::vector<Measure> rotation_measures();
std::vector<Measure> plasticity_measures();

inline constexpr const char* kHeadGroups[] = {"all", "rope", "nope", "unknown"};

// Of the heads of a group that have a number.
std::vector<double> values_of(const AnalysisRun& run, const Measure& measure,
                              const std::string& group);

// Null where the mean has no error.
const MeanError* find_error(const AnalysisRun& run, const std::string& quantity,
                            const std::string& heads);

}  // namespace qkscope
