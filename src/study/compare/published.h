// Published numbers: CSV files of the data folder or the user's own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qkscope/experimental/study.h"

namespace qkscope {

// Mean plasticity over a range of query positions; fractions are of the range that has values.
struct ProfileBin {
  double low = 0;
  double high = 0;
  bool fraction = false;  // else tokens
};

struct PublishedNumber {
  // What a row of this file is about.
  enum class Form {
    quantity,    // a statistic over the heads of a run, by the name of the quantity
    profile,     // `bin`, less `minus` where that is set
    line,        // the profile's value at the middle of `bin`
    heatmap,     // a cell: `bin` is the distance of the keys, `index` that of the query
    weight,      // of the dimension `index`
    components,  // PCA of one side of one head: `layer`, `head`, `side`, component `index`
  };
  std::string subject;   // the checkpoint, model or scope it is about
  std::string quantity;  // for a profile its table and bin: "deciles 0-10%"
  Form form = Form::quantity;
  double value = 0;  // NaN where no number was printed
  double se = 0;     // of rounding, and of reading a figure; NaN where it is not known
  std::string text;  // as it was printed
  std::string kind;
  std::string source;
  bool preferred = true;

  ProfileBin bin;
  std::optional<ProfileBin> minus;
  std::optional<std::int64_t> layer;
  std::int64_t head = 0;
  char side = 'q';
  std::int64_t index = 0;
};

struct PublishedSet {
  std::string file;
  bool pooled = false;  // over several runs: subjects are scopes ("11 models, 3239 heads")
  std::vector<PublishedNumber> numbers;  // in the order of the file

  std::vector<std::string> subjects() const;  // in the order of the file
};

// `name`: a set (published/NAME.csv of the first data folder that has it), or the path of a CSV
// file: what ends in .csv or has a slash. share/published/README.md describes the columns. A name
// that is not there is bad input that lists those that are; a bad row is one that names the file
// and the row.
PublishedSet read_published(const std::string& name);

}  // namespace qkscope
