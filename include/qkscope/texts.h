// Text datasets, read front to back as they come: Parquet, JSON Lines, JSON, CSV, plain text, and
// folders of such files, like the snapshot of a dataset of the Hugging Face Hub.
#pragma once

#include <atomic>
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

QKSCOPE_API std::unique_ptr<Corpus> open_corpus(const CorpusOptions& options);

// ---- Datasets of long texts, made from any other ----

class Tokenizer;  // qkscope/tokenizer.h

struct LongTextOptions {
  std::string out = {};                     // .parquet or .jsonl; appears when it is whole
  std::string id_column = "id";             // its name in the file
  std::int64_t min_tokens = 1;              // texts with fewer are left out
  std::int64_t max_tokens = 0;              // longer texts are cut to so many; 0: they stay whole
  std::int64_t keep = 0;                    // end after so many texts; 0: all that are long enough
  bool special_tokens = true;               // counted in
  bool quiet = false;                       // no progress
  const std::atomic<bool>* stop = nullptr;  // ends it soon, without a file
};

struct LongTextResult {
  bool finished = false;  // else it was stopped
  std::int64_t read = 0;  // texts, up to the last that was needed
  std::int64_t kept = 0;
  std::int64_t cut = 0;  // of those
  std::int64_t too_short = 0;
  std::int64_t longest = 0;  // tokens of the longest text that was too short
  std::int64_t tokens = 0;   // of the texts kept
};

// Columns of the file: id (an integer where the dataset has one, the row where it has none), text,
// tokens. In the order of the dataset; the same input gives the same bytes. Not one text that is
// long enough is bad input.
QKSCOPE_API LongTextResult write_long_texts(Corpus& corpus, const Tokenizer& tokenizer,
                                            const LongTextOptions& options);

}  // namespace qkscope
