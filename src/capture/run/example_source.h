// Inputs of a run: documents that it reads or that the caller passes, and file fingerprints.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "base/io/file_list.h"
#include "capture/format/journal.h"
#include "capture/format/manifest.h"
#include "capture/run/capture_plan.h"
#include "capture/writer/selection.h"
#include "qkscope/captures.h"
#include "qkscope/experimental/engine.h"
#include "qkscope/texts.h"
#include "qkscope/tokenizer.h"

namespace qkscope {

CorpusOptions corpus_options(const RunPlan& plan, const Shard& shard);

class ExampleSource {
 public:
  // Opens the dataset and starts loading the tokenizer in the background.
  ExampleSource(const RunPlan& plan, const Shard& shard);
  // Blocks until the tokenizer is loaded. Like next(), throws if it cannot be read.
  void wait_for_tokenizer() const {
    if (!engine_) tokenizer_.get();
  }

  // Reads the next example, a text or a chunk of a text. Returns false after the last one.
  bool next(Example& example);
  // Number of chunks that next() dropped because they are too short.
  std::int64_t dropped_chunks() const { return dropped_chunks_; }

  // Skips an example that an earlier process stored. A changed dataset is a bad-input error.
  void skip_stored_example(const ExampleRecord& stored);

  // Whether ids come from a dataset column, which may contain duplicates.
  bool has_dataset_ids() const { return options_.id_column && !options_.number_rows; }
  // Returns the number of documents of this shard. Two rows with the same id are a bad-input error.
  std::int64_t count_documents_with_unique_ids() const;
  // Runs in the background: checks ids if `checks_ids`, counts examples if `wanted`. Returns 0 if
  // the examples are not counted or the dataset is too large to count.
  std::future<std::int64_t> start_counting_examples(bool checks_ids, bool wanted) const;

 private:
  // Reads the next document into document_. Returns false after the last one.
  bool read_document();
  // Tokenizes a document. Error messages name its dataset row.
  TextChunks encode(const Document& document) const;
  // Returns the record of the next chunk, or of the whole document, without tokens and truncated.
  ExampleRecord make_example_record() const;

  CorpusOptions options_;
  std::unique_ptr<Corpus> corpus_;
  std::shared_ptr<ExternalEngine> engine_;  // tokenizes the texts; null: tokenizer_ does
  std::shared_future<Tokenizer> tokenizer_;
  TokenizerConfig tokenizer_config_;
  bool keep_strings_;
  Document document_;
  std::uint64_t text_checksum_ = 0;  // of document_
  bool encoded_ = true;              // chunks_ holds the chunks of document_
  std::vector<Tokenizer::Encoding> chunks_;
  std::size_t next_chunk_ = 0;  // of document_
  std::int64_t examples_ = 0;   // number of examples read or skipped
  std::int64_t dropped_chunks_ = 0;
};

// Fingerprints of the input files are part of the identity of a run, so that a run is not resumed
// with other texts, weights or tokenizers.

// Returns the current state of all input files, so that changes during the run can be detected.
FileSnapshot snapshot_inputs(const RunPlan& plan);

// Returns {"config": {file: fingerprint}, "tokenizer": ...}, without kinds that have no files.
Json fingerprint_small_inputs(const RunPlan& plan);

// Returns the manifest with fingerprints of all input files added to the identity of the run.
Manifest manifest_with_fingerprints(const RunPlan& plan);

// ---- Documents that a caller passes to a CaptureWriter or StatsWriter one after another

// Numbers documents, checks their ids, and compares them with those that earlier writers stored.
class DocumentList {
 public:
  // Plan and journal must outlive this object. `journal` is null if the run is already finished.
  DocumentList(const RunPlan& plan, const Journal* journal, const Shard& shard);

  std::int64_t documents_stored_before() const { return stored_; }  // by earlier writers
  std::int64_t documents_passed() const { return passed_; }

  // Returns the next document as an example; counts it and returns nullopt if an earlier writer
  // stored it. Invalid ids or another document stored at this index are bad-input errors.
  std::optional<Example> next_to_store(const WriterDocument& document);
  void count_document(const Example& example);
  // Throws a bad-input error if the caller passed fewer documents than earlier writers stored.
  void check_stored_documents_were_passed() const;

 private:
  Example next_example(const WriterDocument& document) const;

  const RunPlan& plan_;
  const Journal* journal_;
  Shard shard_;
  std::int64_t stored_ = 0;
  std::int64_t passed_ = 0;
  std::unordered_set<std::int64_t> keys_;  // keys of the passed documents
  std::size_t next_segment_ = 0;
  std::vector<ExampleRecord> segment_;  // stored examples of one segment
  std::size_t next_record_ = 0;
};

}  // namespace qkscope
