// Text datasets, read front to back as they come: Parquet, JSON Lines, JSON, CSV, plain text, and
// folders of such files, like the snapshot of a dataset of the Hugging Face Hub.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

struct CorpusOptions {
  std::string path;                 // a file, or a folder like the snapshot of a Hub dataset
  std::optional<std::string> name;  // the dataset's configuration: a folder inside it
  std::string split = "train";      // which files of a folder
  std::string text_column = "text";
  std::optional<std::string> id_column;
  bool number_rows = false;      // the row is the key; the id column, if any, only names the text
  std::int64_t max_samples = 0;  // only the first rows; 0: all
  std::int64_t shard_index = 0;  // only rows with row % shard_count == shard_index
  std::int64_t shard_count = 1;
  bool replace_invalid = false;  // bytes that are not UTF-8 become U+FFFD instead of an error
};

// One text of a dataset.
struct Document {
  std::int64_t row = 0;          // in the whole dataset, from 0, skipped rows counted
  std::int64_t example_key = 0;  // seeds the sampling of this text: an integer id itself, the hash
                                 // of any other id, or the row where rows are numbered or there
                                 // is no id column
  std::string source_id;         // the id as the dataset writes it
  std::string text;              // valid UTF-8, not empty
};

struct CorpusColumn {
  std::string name;
  std::string type;  // as the file names it: "string", "int64"
};

// A dataset that is being read.
class QKSCOPE_API Corpus {
 public:
  Corpus() = default;
  virtual ~Corpus();
  Corpus(const Corpus&) = delete;
  Corpus& operator=(const Corpus&) = delete;

  // The next document, false after the last. A dataset that ends without one is bad input, and so
  // is a broken row; the message says the file and the row.
  virtual bool next(Document& document) = 0;

  struct Counts {
    std::int64_t rows = 0;        // read so far, in this shard
    std::int64_t documents = 0;   // given out
    std::int64_t null_texts = 0;  // skipped
    std::int64_t empty_texts = 0;
  };
  virtual const Counts& counts() const = 0;

  // In the order they are read.
  virtual const std::vector<std::string>& files() const = 0;
  // Of the first file.
  virtual const std::vector<CorpusColumn>& columns() const = 0;
};

QKSCOPE_API std::unique_ptr<Corpus> open_corpus(const CorpusOptions& options,
                                                Version headers = kHeaderVersion);

}  // namespace qkscope
