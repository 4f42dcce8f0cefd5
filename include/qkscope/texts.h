// Text datasets, read as a stream of documents: Parquet, JSON Lines, JSON, CSV, plain text, or a
// folder of such files, such as a snapshot of a Hugging Face dataset.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/tokenizer.h"
#include "qkscope/version.h"

namespace qkscope {

// Options of open_corpus().
struct CorpusOptions {
  std::string path;                 // a file, or a folder such as a snapshot of a Hub dataset
  std::optional<std::string> name;  // dataset configuration (subset); a folder inside the dataset
  std::string split = "train";      // split to read if `path` is a folder
  std::string text_column = "text";
  std::optional<std::string> id_column;
  bool number_rows = false;      // use the row number as example key even if there is an id column
  std::int64_t max_samples = 0;  // read only the first rows; 0: all
  std::int64_t shard_index = 0;  // read only rows where row % shard_count == shard_index
  std::int64_t shard_count = 1;
  bool replace_invalid = false;  // replace invalid UTF-8 by U+FFFD instead of throwing
};

// One text of a dataset.
struct Document {
  std::int64_t row = 0;  // row number in the whole dataset from 0; skipped rows count
  // Seed for sampling positions of this text: the id if it is an integer, otherwise a hash of the
  // id; the row number if number_rows is set or there is no id column.
  std::int64_t example_key = 0;
  std::string source_id;  // the id as written in the dataset
  std::string text;       // valid UTF-8, not empty
};

struct CorpusColumn {
  std::string name;
  std::string type;  // type name in the file, e.g. "string" or "int64"
};

// Reads the documents of one dataset in order.
class QKSCOPE_API Corpus {
 public:
  Corpus() = default;
  virtual ~Corpus();
  Corpus(const Corpus&) = delete;
  Corpus& operator=(const Corpus&) = delete;

  // Reads the next document; returns false after the last one. Throws a bad-input error that names
  // file and row if a row is malformed, or if the dataset contains no text at all.
  virtual bool next(Document& document) = 0;

  struct Counts {
    std::int64_t rows = 0;        // rows read so far in this shard
    std::int64_t documents = 0;   // documents returned
    std::int64_t null_texts = 0;  // rows skipped because the text is null
    std::int64_t empty_texts = 0;
  };
  virtual const Counts& counts() const = 0;

  // Paths of the data files in reading order.
  virtual const std::vector<std::string>& files() const = 0;
  // Columns of the first file.
  virtual const std::vector<CorpusColumn>& columns() const = 0;
};

// Opens a dataset. Throws a bad-input error if its files are missing or have an unsupported format.
QKSCOPE_API std::unique_ptr<Corpus> open_corpus(const CorpusOptions& options);

// ---- Chunks: a long text as several examples ----

// Chunking options: section `tokenizer` of a configuration, or `qkscope dataset --chunk`.
struct ChunkOptions {
  std::int64_t size = 0;        // tokens of a chunk, special tokens included; 0: texts stay whole
  std::int64_t overlap = 0;     // tokens of text that a chunk repeats from the chunk before
  std::int64_t min_length = 1;  // tokens; a shorter last chunk is dropped
};

// A text in chunks.
struct TextChunks {
  std::vector<Tokenizer::Encoding> chunks = {};  // without offsets
  // Shape (chunks). Character range of each chunk; empty unless EncodeOptions::offsets is set.
  // Chunks without overlap cover the whole text.
  std::vector<TokenOffset> ranges = {};
  std::int64_t tokens = 0;  // of the whole text, special tokens included
  bool dropped = false;     // the last chunk was shorter than min_length
};

// Tokenizes a text once and cuts the tokens into windows, each with the special tokens that the
// tokenizer adds to a text. The ids equal those of the tokenizers library with
// return_overflowing_tokens and stride = overlap. Of `options`, max_length must be 0. Throws a
// bad-input error if the sizes contradict each other or a chunk has no room for text.
QKSCOPE_API TextChunks encode_chunks(const Tokenizer& tokenizer, std::string_view text,
                                     const ChunkOptions& chunk,
                                     const Tokenizer::EncodeOptions& options);

// ---- Datasets of long texts, filtered from another dataset ----

// Options of write_long_texts().
struct LongTextOptions {
  std::string out = {};          // output path, .parquet or .jsonl; created atomically
  std::string id_column = "id";  // name of the id column in the output file
  std::int64_t min_tokens = 1;   // shorter texts are skipped
  std::int64_t max_tokens = 0;   // longer texts are truncated to this length; 0: no limit
  std::int64_t keep = 0;         // stop after this many texts; 0: keep all
  bool special_tokens = true;    // include special tokens in the counts
  bool quiet = false;            // suppress the progress bar
  const std::atomic<bool>* stop = nullptr;  // set to true to cancel; no file is written
  ChunkOptions chunk = {};                  // write one row per chunk; excludes max_tokens
};

// Result of write_long_texts().
struct LongTextResult {
  bool finished = false;  // false if `stop` was set
  std::int64_t read = 0;  // texts read, up to the last one needed
  std::int64_t kept = 0;
  std::int64_t cut = 0;  // kept texts that were truncated
  std::int64_t too_short = 0;
  std::int64_t longest = 0;  // tokens of the longest skipped text
  std::int64_t tokens = 0;   // tokens of all rows
  std::int64_t rows = 0;     // chunks, or kept texts
  std::int64_t dropped_chunks = 0;
};

// Writes the texts of `corpus` that have at least min_tokens tokens to a new dataset. Columns: id
// (integer if the source id is one; the row number if the source has no ids; "ID#0", "ID#1", ...
// for chunks), text, tokens. Rows keep their order, and the output is deterministic. Throws a
// bad-input error if no text is long enough.
QKSCOPE_API LongTextResult write_long_texts(Corpus& corpus, const Tokenizer& tokenizer,
                                            const LongTextOptions& options);

}  // namespace qkscope
