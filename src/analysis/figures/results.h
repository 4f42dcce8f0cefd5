// The result tables of one analysis or of a sweep, as the figures take them, and summaries of their
// numbers over heads.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/figures/run_facts.h"
#include "base/numerics/sample_statistics.h"
#include "qkscope/tables.h"

namespace qkscope {

// A table whose rows know their run.
class Frame {
 public:
  Frame(Table table, std::string path, std::vector<int> run);

  std::size_t rows() const { return run_.size(); }
  const std::vector<int>& run() const { return run_; }  // (rows): index into Results::runs
  bool has(std::string_view column) const { return table_.find(column) != nullptr; }
  // A missing column is bad input.
  const std::vector<double>& reals(std::string_view column) const;
  const std::vector<std::int64_t>& integers(std::string_view column) const;
  // The same where fields may be empty: Table::kNoInteger.
  const std::vector<std::int64_t>& integers_with_gaps(std::string_view column) const;
  const std::vector<std::string>& texts(std::string_view column) const;
  // The column "head", which some tables call "q_head".
  const std::vector<std::int64_t>& heads() const;

 private:
  const Table::Column& column(std::string_view name, Table::Type type) const;

  Table table_;
  std::string path_;
  std::vector<int> run_;
};

// What a user may ask of figures.
struct FigureChoices {
  std::array<int, 2> components = {0, 1};
  std::string head;    // "LAYER.HEAD"; empty: any
  std::string scores;  // path of a CSV; empty: none
};

struct Interval {
  double low = 0;
  double high = 0;
};

class Results {
 public:
  // A folder with at least one table that `qkscope analyze` or `qkscope sweep` wrote.
  explicit Results(std::string folder, FigureChoices choices = {});

  const std::string& folder() const { return folder_; }
  const FigureChoices& choices() const { return choices_; }
  const std::string& name() const { return name_; }       // of the sweep; empty where it has none
  const std::vector<Run>& runs() const { return runs_; }  // by order
  bool single() const { return runs_.size() == 1; }
  const std::vector<Json>& runs_without_rows() const { return other_runs_; }  // of runs.json
  bool has(const std::string& table) const;
  const Frame& frame(const std::string& table) const;  // read on first use; the table must be there

  // 95 % interval over texts of a mean over heads, from errors.parquet; none where it is not known.
  // `heads`: "all", "rope" or "nope".
  std::optional<Interval> interval(std::size_t run, const std::string& quantity,
                                   const std::string& heads = "all") const;

 private:
  std::string path(const std::string& table) const;
  int run_of(const std::string& label) const;
  void read_intervals();

  std::string folder_;
  FigureChoices choices_;
  std::string name_;
  std::vector<Run> runs_;
  std::vector<Json> other_runs_;
  std::map<std::string, Interval> intervals_;  // by run, quantity and heads
  mutable std::map<std::string, std::unique_ptr<Frame>> frames_;
};

// Whether any head of the frame is on a layer without RoPE.
bool any_nope(const Frame& frame);

// The column of head_profile with the errors of its bins over texts: of keys and queries, or of the
// keys alone in older results; empty where there is none.
std::string profile_error_column(const Frame& profile);

// "0.3 and 0.7", or that they differ from run to run.
std::string bounds_text(const Results& results);

// `values` of the rows that `take` accepts, run by run; NaN is left out.
std::vector<std::vector<double>> by_run(const Results& results, const Frame& frame,
                                        const std::vector<double>& values,
                                        const std::function<bool(std::size_t)>& take);
std::vector<std::vector<double>> by_run(const Results& results, const Frame& frame,
                                        const std::vector<double>& values);

std::vector<double> absolute(std::vector<double> values);

// No run has a value.
bool all_empty(const std::vector<std::vector<double>>& groups);

// (runs): the largest value of a column, 1 where there is none. For the range of an axis.
std::vector<double> largest_by_run(const Results& results, const Frame& frame,
                                   const std::string& column);

}  // namespace qkscope
