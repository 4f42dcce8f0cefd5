// The inputs of a run: reads and tokenizes its documents, and fingerprints its files.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "capture/format/manifest.h"
#include "capture/format/segment.h"
#include "capture/run/capture_plan.h"
#include "qkscope/captures.h"
#include "qkscope/texts.h"
#include "qkscope/tokenizer.h"

namespace qkscope {

struct Example {
  ExampleRecord record;
  std::vector<std::int32_t> ids;
  std::vector<std::string> token_strings;  // (ids) such as "Ġthe", or empty when not captured
};

CorpusOptions corpus_options(const RunPlan& plan, const Shard& shard);

class ExampleSource {
 public:
  // Opens the dataset and loads the tokenizer in the background.
  ExampleSource(const RunPlan& plan, const Shard& shard);
  // Blocks until the tokenizer is loaded. Throws a bad-input error if it cannot be read, as next()
  // does.
  void wait_for_tokenizer() const { tokenizer_.get(); }

  // Reads the next example. Returns false after the last one.
  bool next(Example& example);

  // Skips examples that an earlier process has stored. Throws a bad-input error if the dataset
  // changed.
  void skip_stored_examples(const std::vector<ExampleRecord>& done);

  // Returns the number of documents, or 0 when the dataset is too large to count.
  std::int64_t count_documents() const;

  // Whether ids come from a dataset column, which may contain duplicates.
  bool has_dataset_ids() const { return options_.id_column && !options_.number_rows; }
  // Reads the whole dataset and throws a bad-input error if two rows have the same id. Returns the
  // number of documents of this shard.
  std::int64_t check_unique_ids() const;
  // Counts the documents in the background: by check_unique_ids() if `checks_ids`, else by
  // count_documents() if `wanted`, else returns 0.
  std::future<std::int64_t> start_counting_documents(bool checks_ids, bool wanted) const;

 private:
  // Tokenizes document_. Error messages name its dataset row.
  Tokenizer::Encoding encode_document() const;

  CorpusOptions options_;
  std::unique_ptr<Corpus> corpus_;
  std::shared_future<Tokenizer> tokenizer_;
  std::int64_t max_length_;
  bool keep_strings_;
  Document document_;
};

// Fingerprints of the input files are part of the identity of a run, so that a run is not resumed
// with other texts, weights or tokenizers.

// Returns {"config": {file: fingerprint}, "tokenizer": ..., "weights": ..., "dataset": ...}. A kind
// without existing files is left out.
Json fingerprint_inputs(const RunPlan& plan);

// Returns the entries "config" and "tokenizer" of fingerprint_inputs() only.
Json fingerprint_small_inputs(const RunPlan& plan);

// Returns the plan's manifest with the fingerprints added to its identity.
Manifest manifest_with_inputs(const RunPlan& plan);

}  // namespace qkscope
