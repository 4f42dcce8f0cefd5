// The result tables of one analysis or of a sweep, and how figures group their rows.
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

#include "analysis/figures/runs.h"
#include "base/numerics/sample_statistics.h"
#include "qkscope/tables.h"

namespace qkscope {

// A result table with the run index of every row.
class Frame {
 public:
  Frame(Table table, std::string path, std::vector<int> run);

  std::size_t rows() const { return run_.size(); }
  const std::vector<int>& run() const { return run_; }  // (rows): index into Results::runs
  bool has(std::string_view column) const { return table_.find(column) != nullptr; }

  // Each accessor throws bad input if the column is missing or has another type.
  const std::vector<double>& reals(std::string_view column) const;
  const std::vector<std::int64_t>& integers(std::string_view column) const;  // no nulls allowed
  const std::vector<std::int64_t>& integers_with_gaps(std::string_view column) const;
  const std::vector<std::string>& texts(std::string_view column) const;
  // A column of reals, integers or booleans as reals; NaN where there is no value.
  std::vector<double> numbers(std::string_view column) const;
  // The column "head", which some tables call "q_head".
  const std::vector<std::int64_t>& heads() const;

  // True for rows of principal component 0, and for every row of a table without components.
  bool is_first_component(std::size_t row) const;
  bool is_nope(std::size_t row) const { return texts("rope")[row] == "nope"; }
  bool any_nope() const;

  // Attention kind of the row's layer: "full", "sliding:512" or "none"; "" in older results.
  const std::string& attention(std::size_t row) const;
  // The different attention kinds of the table in order of appearance; {""} in older results.
  std::vector<std::string> attention_kinds() const;

 private:
  const Table::Column& column(std::string_view name, Table::Type type) const;

  Table table_;
  std::string path_;
  std::vector<int> run_;
};

// Options of the user that change what figures show.
struct FigureChoices {
  std::array<int, 2> components = {0, 1};
  std::string head;       // "LAYER.HEAD"; empty: the first head
  std::string scores;     // path of a CSV file; empty: none
  std::string attention;  // only heads with this attention kind; empty: all heads
};

struct Interval {
  double low = 0;
  double high = 0;
};

class Results {
 public:
  // Opens a folder with at least one table of `qkscope analyze` or `qkscope sweep`. Throws bad
  // input if there is none.
  explicit Results(std::string folder, FigureChoices choices = {});

  const std::string& folder() const { return folder_; }
  const FigureChoices& choices() const { return choices_; }
  const std::string& name() const { return metadata_.name; }
  const std::vector<Run>& runs() const { return runs_; }  // sorted by Run::order
  int run_count() const { return static_cast<int>(runs_.size()); }
  bool single() const { return runs_.size() == 1; }
  // The label of a run as one line of text for a CSV cell.
  std::string label(int run) const;
  // The title of the first run as one line, for captions of figures about one run.
  std::string title() const;
  const std::vector<Json>& runs_without_rows() const { return metadata_.runs_without_rows; }
  bool has(const std::string& table) const;
  // Reads the table on first use and keeps the heads that FigureChoices::attention selects. Throws
  // if the table does not exist.
  const Frame& frame(const std::string& table) const;

  // Returns the 95 % interval over texts of a mean over heads from errors.parquet, or nullopt.
  // `heads` is "all", "rope" or "nope".
  std::optional<Interval> interval(std::size_t run, const std::string& quantity,
                                   const std::string& heads = "all") const;

 private:
  std::string path(const std::string& table) const;
  int run_of(const std::string& label) const;
  void read_intervals();

  std::string folder_;
  FigureChoices choices_;
  SweepMetadata metadata_;
  std::vector<Run> runs_;
  std::map<std::string, Interval> intervals_;  // key: run, quantity, heads
  mutable std::map<std::string, std::unique_ptr<Frame>> frames_;
};

// Heads that one panel of a figure may average: one run and one attention kind, because sliding
// and full attention have different ranges of keys.
struct PanelGroup {
  int run = 0;
  std::string attention;  // empty: the run has only one kind
  std::string title;
};

// The head groups of a table, and the group of every row.
struct PanelGroups {
  std::vector<PanelGroup> groups;
  std::vector<int> of_row;  // (rows): index into groups

  PanelGroups(const Results& results, const Frame& frame);
  int count() const { return static_cast<int>(groups.size()); }
  bool split() const;  // some run has more than one attention kind
};

// "sliding:512" -> "sliding attention, 512 tokens"; "full" -> "full attention".
std::string attention_title(const std::string& kind);

// Name of the column of head_profile with the standard error over texts: "se", or "stderr" in older
// results; empty where the table has neither.
std::string profile_error_column(const Frame& profile);

// "0.3 and 0.7", or a sentence if the taxonomy bounds differ between runs.
std::string bounds_text(const Results& results);

// Groups `values` (rows) by run; rows that are NaN or that `take` rejects are left out.
std::vector<std::vector<double>> by_run(
    const Results& results, const Frame& frame, const std::vector<double>& values,
    const std::function<bool(std::size_t)>& take = [](std::size_t) { return true; });

std::vector<double> absolute(std::vector<double> values);

// Returns true if every group is empty.
bool all_empty(const std::vector<std::vector<double>>& groups);

// Returns the largest value of a column in each group of heads, or 1 for a group without values.
// Figures use the maxima as axis limits.
std::vector<double> largest_by_group(const PanelGroups& groups, const Frame& frame,
                                     const std::string& column);

// Returns the indices of up to `count` outliers of a scatter plot, farthest first. The distance of
// a point from (median of x, median of y) is measured in interquartile ranges of x and y. A point
// whose label would overlap the label of a farther point is skipped.
std::vector<std::size_t> outstanding(const std::vector<double>& x, const std::vector<double>& y,
                                     std::size_t count);

// Returns a table without rows from its schema, for example "integer run, real r_q, text model".
Table empty_table(const std::string& columns);

}  // namespace qkscope
