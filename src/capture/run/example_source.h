// The examples of a run: documents read as they come and tokenized.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "capture/format/examples.h"
#include "capture/run/capture_plan.h"
#include "qkscope/captures.h"
#include "qkscope/texts.h"
#include "qkscope/tokenizer.h"

namespace qkscope {

struct Example {
  ExampleRecord record;
  std::vector<std::int32_t> ids;
  std::vector<std::string> token_strings;  // (ids) "Ġthe" where the run keeps them, else empty
};

CorpusOptions corpus_options(const RunPlan& plan, const Shard& shard);

class ExampleSource {
 public:
  // The tokenizer loads while the caller goes on.
  ExampleSource(const RunPlan& plan, const Shard& shard);
  // Until the tokenizer is there; one that cannot be read is bad input here, or in next().
  void wait() const { tokenizer_.get(); }

  // False after the last one.
  bool next(Example& example);

  // Passes over examples that an earlier run has done; they must be the same ones.
  void skip(const std::vector<ExampleRecord>& done);

  // How many documents there are, 0 when counting would take long.
  std::int64_t count_documents() const;

  // Whether ids come from a column, where two rows may have the same one.
  bool has_foreign_ids() const { return options_.id_column && !options_.number_rows; }
  // Reads all of the dataset: two rows with one id are bad input that names them. Returns how many
  // documents of this shard there are.
  std::int64_t check_ids() const;
  // The number of documents, found while the caller goes on: their ids are checked on the way where
  // that is asked for; 0 where it is not and nobody wants to know.
  std::future<std::int64_t> count(bool checks_ids, bool wanted) const;

 private:
  // The tokens of document_; an error names its row.
  Tokenizer::Encoding encode() const;

  CorpusOptions options_;
  std::unique_ptr<Corpus> corpus_;
  std::shared_future<Tokenizer> tokenizer_;
  std::int64_t max_length_;
  bool keep_strings_;
  Document document_;
};

}  // namespace qkscope
