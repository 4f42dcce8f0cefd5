// What an analysis left on the disk, as numbers of heads: the side of a comparison that is ours.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/io/json.h"
#include "qkscope/tables.h"

namespace qkscope {

// One finished analysis.
struct RunFolder {
  std::string label;
  std::string folder;
};

// The runs of a sweep's folder (those that are done), or the one of a results folder. Another
// folder, or one without a finished run, is bad input.
std::vector<RunFolder> runs_in(const std::string& folder);

struct HeadNumber {
  std::int64_t layer = 0;
  std::int64_t head = 0;
  double value = 0;  // never NaN
};

// A bin of a profile that has a value.
struct ProfileValue {
  double low = 0;  // tokens
  double high = 0;
  double ap = 0;

  double middle() const { return 0.5 * (low + high); }
};

struct HeadProfile {
  std::int64_t layer = 0;
  std::vector<ProfileValue> values;  // by position; at least one
};

// A number of heads: a column of a table, its size, or its size over that of another column.
struct HeadColumn {
  std::string quantity;  // the name by which it is published
  std::string table;
  std::string column;
  bool absolute = false;
  std::string over = {};   // the column it is divided by
  std::string is = {};     // of a text column: 1 where it holds this, else 0
  std::int64_t pc = 0;     // of the table qk: the component
  std::string error = {};  // its name in errors.csv; "": the quantity's

  std::string shown() const;  // "rotated |alpha_k|"
};

// The tables of one run, or of several taken together. They are read when they are asked for.
class RunNumbers {
 public:
  explicit RunNumbers(std::vector<RunFolder> runs) : runs_(std::move(runs)) {}

  // "3 runs" where there are several.
  std::string label() const;

  // Null where a run lacks the table. One table per run; the pointer stays valid.
  const std::vector<Table>* tables(const std::string& name);
  // Heads without a number are left out; nothing where the table or a column is missing.
  std::optional<std::vector<HeadNumber>> heads(const HeadColumn& column);
  // One for each head that has a value; none where the results have no profile with bins.
  const std::vector<HeadProfile>& profiles();
  // Standard error of the mean over all heads; NaN where errors.csv does not have it, and where
  // several runs are taken together.
  double error_of(const std::string& quantity);
  // What the analysis was told, from summary.json; of the first run where there are several. An
  // empty object where it does not say.
  const Json& options();

 private:
  const std::map<std::string, double>& errors();

  std::vector<RunFolder> runs_;
  std::map<std::string, std::optional<std::vector<Table>>> tables_;
  std::optional<std::vector<HeadProfile>> profiles_;
  std::optional<std::map<std::string, double>> errors_;
  std::optional<Json> options_;
};

}  // namespace qkscope
