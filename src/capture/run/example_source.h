// Inputs of a run: documents (from a dataset or the caller) and fingerprints of input files.
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
  std::int64_t dropped_chunk_count() const { return dropped_chunks_; }

  // Skips an example that an earlier process stored. A changed dataset is a bad-input error.
  void skip_stored_example(const ExampleRecord& stored);

  // Whether ids come from a dataset column, which may contain duplicates.
  bool has_dataset_ids() const { return options_.id_column && !options_.number_rows; }
  // Returns the number of documents of this shard. Two rows with the same id are a bad-input error.
  std::int64_t check_ids_and_count_documents() const;
  // Starts a background task. If `checks_ids`, the task rejects duplicate ids. If `counts`, it
  // counts the examples. Its result is 0 if it does not count or the dataset is too large.
  std::future<std::int64_t> scan_examples_async(bool checks_ids, bool counts) const;

 private:
  // Reads the next document into document_. Returns false after the last one.
  bool read_document();
  // Tokenizes a document. Error messages name its dataset row.
  TextChunks encode_document(const Document& document) const;
  // Returns the record of the next chunk or whole document; `tokens` and `truncated` stay unset.
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

// Returns fingerprints of files: {"config": {file: fingerprint}, "tokenizer": {...}}.
Json fingerprint_config_and_tokenizer(const RunPlan& plan);

// Returns the manifest with fingerprints of all input files added to the identity of the run.
Manifest make_fingerprinted_manifest(const RunPlan& plan);

// Receives the documents that a caller passes to a CaptureWriter or StatsWriter: numbers documents,
// checks document ids, and recognizes documents that earlier writers stored.
class DocumentReceiver {
 public:
  // The plan and the journal must outlive this object. `journal` is null for a finished run.
  DocumentReceiver(const RunPlan& plan, const Journal* journal, const Shard& shard);

  std::int64_t previously_stored_document_count() const { return stored_; }  // by earlier writers
  std::int64_t documents_received() const { return passed_; }

  // Returns the document as an example; if an earlier writer stored it, counts it and returns
  // nullopt. Invalid ids or another document stored at this index are bad-input errors.
  std::optional<Example> make_example_unless_stored(const WriterDocument& document);
  void mark_document_received(const Example& example);
  // Throws a bad-input error if the caller passed fewer documents than earlier writers stored.
  void check_received_all_stored_documents() const;

 private:
  Example make_example(const WriterDocument& document) const;

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
