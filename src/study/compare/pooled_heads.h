// The heads of several analyses as one list of numbers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "study/compare/run_numbers.h"

namespace qkscope {

struct PooledHead {
  std::string model;               // the run's label
  std::string rope;                // "rope", "nope" or "unknown"
  std::string attention = "full";  // or "sliding"
  std::int64_t layer = 0;
  std::int64_t head = 0;
  double depth = 0;                      // layer / last layer of the run's heads
  std::map<std::string, double> values;  // by quantity; a number that does not exist is missing

  double value(const std::string& quantity) const;  // NaN where it is missing
};

// Every head of the runs with the numbers that their tables hold, by run, layer and head.
std::vector<PooledHead> pooled_heads(const std::vector<RunFolder>& runs);

// The names of the numbers, in the order in which tables show them.
std::vector<std::string> pooled_quantities(const std::vector<PooledHead>& heads);

}  // namespace qkscope
