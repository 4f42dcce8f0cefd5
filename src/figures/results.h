// The result tables of one analysis or of a sweep, as the figures take them, and summaries of their
// numbers over heads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/tables.h"

namespace qkscope {

struct Run {
  std::string label;
  std::string phase;  // empty for a single analysis
  std::int64_t order = 0;
};

// A table whose rows know their run.
class Frame {
 public:
  Frame(Table table, std::string path, std::vector<int> run);

  std::size_t rows() const { return run_.size(); }
  const std::vector<int>& run() const { return run_; }  // (rows): index into Results::runs
  // A missing column is bad input.
  const std::vector<double>& reals(std::string_view column) const;
  const std::vector<std::int64_t>& integers(std::string_view column) const;
  const std::vector<std::string>& texts(std::string_view column) const;

 private:
  const Table::Column& column(std::string_view name, Table::Type type) const;

  Table table_;
  std::string path_;
  std::vector<int> run_;
};

class Results {
 public:
  // A folder with at least one table that `qkscope analyze` or `qkscope sweep` wrote.
  explicit Results(std::string folder);

  const std::string& folder() const { return folder_; }
  const std::vector<Run>& runs() const { return runs_; }  // by order
  bool has(const std::string& table) const;
  const Frame& frame(const std::string& table) const;  // read on first use; the table must be there

 private:
  std::string path(const std::string& table) const;
  int run_of(const std::string& label) const;

  std::string folder_;
  std::vector<Run> runs_;
  mutable std::map<std::string, std::unique_ptr<Frame>> frames_;
};

// `values` of the rows that `take` accepts, run by run; NaN is left out.
std::vector<std::vector<double>> by_run(const Results& results, const Frame& frame,
                                        const std::vector<double>& values,
                                        const std::function<bool(std::size_t)>& take);
std::vector<std::vector<double>> by_run(const Results& results, const Frame& frame,
                                        const std::vector<double>& values);

// No run has a value.
bool all_empty(const std::vector<std::vector<double>>& groups);

// (runs): the largest value of a column, 1 where there is none. For the range of an axis.
std::vector<double> largest_by_run(const Results& results, const Frame& frame,
                                   const std::string& column);

// Of nothing they are NaN.
double mean_of(const std::vector<double>& values);
double deviation_of(const std::vector<double>& values);           // ddof 1; NaN of one value
double quantile_of(std::vector<double> values, double fraction);  // between neighbours linear

}  // namespace qkscope
