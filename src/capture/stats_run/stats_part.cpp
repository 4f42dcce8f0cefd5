#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <type_traits>

#include "base/core/error.h"
#include "base/io/byte_reader.h"
#include "base/io/checksum.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "capture/format/layout.h"
#include "capture/format/segment.h"
#include "capture/stats_format/stats_file.h"
#include "capture/stats_run/stats_run.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSegmentExamples = 64;
constexpr auto kSegmentTime = std::chrono::seconds(60);
constexpr std::size_t kKeptStates = 2;

// ---- Binary format of the .state files (sums) and .docs files (attention per document) ----

constexpr std::uint64_t kMagic = 0x3154415453535151;  // "QQSSTAT1"

template <typename T>
constexpr bool kIsPlain = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// StatsArchiveWriter and StatsArchiveReader visit the fields of a type in the same order, which
// serialize_value() defines.
class StatsArchiveWriter {
 public:
  explicit StatsArchiveWriter(const std::string& path) : file_(path) { (*this)(kMagic); }

  template <typename T>
  void operator()(const T& value) requires kIsPlain<T> {
    write_bytes(&value, sizeof value);
  }
  void operator()(const std::string& text) {
    (*this)(static_cast<std::uint64_t>(text.size()));
    write_bytes(text.data(), text.size());
  }
  template <typename T>
  void operator()(const std::vector<T>& values) {
    (*this)(static_cast<std::uint64_t>(values.size()));
    if constexpr (kIsPlain<T>)
      write_bytes(values.data(), values.size() * sizeof(T));
    else
      for (const auto& value : values) serialize_value(*this, value);
  }
  template <typename K, typename V>
  void operator()(const std::map<K, V>& values) {
    (*this)(static_cast<std::uint64_t>(values.size()));
    for (const auto& [key, value] : values) {
      serialize_value(*this, key);
      serialize_value(*this, value);
    }
  }

  void finish() {
    const auto check = sum_.value();
    write_bytes(&check, sizeof check);
    file_.commit();
  }

 private:
  void write_bytes(const void* data, std::size_t bytes) {
    const std::span piece(static_cast<const std::byte*>(data), bytes);
    sum_.add(piece);
    file_.write(piece);
  }

  OutputFile file_;
  Checksum sum_;
};

class StatsArchiveReader {
 public:
  // Starts reading at `offset`. The caller must have verified the checksum of the file.
  StatsArchiveReader(const std::string& path, std::size_t offset)
      : file_(path), bytes_(file_.text(), [this](const TruncatedRead&) { throw_damaged_file(); }) {
    bytes_.read_bytes(offset);
  }
  explicit StatsArchiveReader(const std::string& path) : StatsArchiveReader(path, 0) {
    const auto text = file_.text();
    if (text.size() < 2 * sizeof(kMagic)) throw_damaged_file();
    const auto content = text.substr(0, text.size() - sizeof(std::uint64_t));
    if (checksum_of(content) != bytes_.integer_at(content.size(), sizeof(std::uint64_t)) ||
        bytes_.read<std::uint64_t>() != kMagic)
      throw_damaged_file();
  }

  template <typename T>
  void operator()(T& value) requires kIsPlain<T> {
    value = bytes_.read<T>();
  }
  void operator()(std::string& text) { text = bytes_.read_text(read_list_length(1)); }
  template <typename T>
  void operator()(std::vector<T>& values) {
    if constexpr (kIsPlain<T>) {
      values.resize(read_list_length(sizeof(T)));
      const auto from = bytes_.read_bytes(values.size() * sizeof(T));
      if (!values.empty()) std::memcpy(values.data(), from.data(), from.size());
    } else {
      values.resize(read_list_length(1));
      for (auto& value : values) serialize_value(*this, value);
    }
  }
  template <typename K, typename V>
  void operator()(std::map<K, V>& values) {
    values.clear();
    for (auto left = read_list_length(1); left > 0; --left) {
      K key;
      serialize_value(*this, key);
      serialize_value(*this, values[key]);
    }
  }

  // Throws a bad-input error unless the whole file except its checksum was read.
  void finish() const {
    if (bytes_.bytes_left() != sizeof(std::uint64_t)) throw_damaged_file();
  }
  std::size_t offset() const { return bytes_.offset(); }

 private:
  [[noreturn]] void throw_damaged_file() const {
    reject("{}: is damaged; start again with --overwrite", file_.path());
  }
  // Reads the length of a list. A length beyond the rest of the file is a bad-input error.
  std::size_t read_list_length(std::size_t bytes) {
    const auto number = bytes_.read<std::uint64_t>();
    if (number > bytes_.bytes_left() / bytes) throw_damaged_file();
    return static_cast<std::size_t>(number);
  }

  MappedFile file_;
  ByteReader bytes_;
};

// Reads or writes fields of a struct in the order of the arguments.
template <typename Archive, typename... Fields>
void serialize_fields(Archive& archive, Fields&... values) {
  (serialize_value(archive, values), ...);
}

template <typename Archive, typename T>
void serialize_value(Archive& archive, T& value) {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Plain, PositionSums>)
    serialize_fields(archive, value.n, value.t_mean, value.t_m2, value.u_mean, value.u_m2,
                     value.tu_m2);
  else if constexpr (std::is_same_v<Plain, HeadMoments>)
    serialize_fields(archive, value.heads, value.dim, value.pairs, value.positions, value.mean,
                     value.m2, value.ct, value.cu, value.m3, value.m4, value.min, value.max,
                     value.pair_abs, value.norm_mean, value.norm_max);
  else if constexpr (std::is_same_v<Plain, BucketMoments>)
    serialize_fields(archive, value.heads, value.buckets, value.dim, value.n, value.mean, value.m2,
                     value.cov);
  else if constexpr (std::is_same_v<Plain, LayerMoments>)
    serialize_fields(archive, value.first, value.body, value.buckets);
  else if constexpr (std::is_same_v<Plain, AttentionStatistics>)
    serialize_fields(archive, value.columns, value.layers, value.heads, value.buckets,
                     value.documents, value.rows, value.sum, value.square, value.max_logit,
                     value.row_square, value.document_square, value.document_cross,
                     value.document_columns, value.document_counts, value.document_sum,
                     value.document_sum_square, value.key_mass, value.key_observed);
  else if constexpr (std::is_same_v<Plain, RetrievalTrial>)
    serialize_fields(archive, value.id, value.tokens, value.needle_begin, value.needle_end,
                     value.greedy_match, value.counts, value.score);
  else if constexpr (std::is_same_v<Plain, DocumentRecord>)
    serialize_fields(archive, value.row, value.attention.example_key, value.attention.tokens,
                     value.attention.mean, value.attention.values, value.attention.key_sums);
  else if constexpr (std::is_same_v<Plain, std::pair<VectorKind, VectorStage>>)
    serialize_fields(archive, value.first, value.second);
  else if constexpr (std::is_same_v<Plain, Statistics>)
    serialize_fields(archive, value.metadata, value.configuration, value.max_length, value.heads,
                     value.key_heads, value.dim, value.layers, value.ropes, value.rotary,
                     value.windows, value.interleaved, value.moment_layers, value.moments,
                     value.attention, value.retrieval);
  else
    archive(value);
}

// ---- Documents of all parts ----

// Returns the path of a segment with another suffix, such as 00000007.state for 00000007.seg.
std::string segment_path_with_suffix(const Journal& journal, const std::string& segment,
                                     const char* suffix) {
  return journal.segment_path(fs::path(segment).stem().string() + suffix);
}

class MultiPartDocumentReader : public DocumentSource {
 public:
  explicit MultiPartDocumentReader(const std::vector<Journal>& parts) {
    for (const auto& part : parts) insert_cursor({.journal = &part});
  }

  bool next(DocumentAttention& document) override {
    if (order_.empty()) return false;
    auto first = std::move(order_.extract(order_.begin()).mapped());
    document = first.file->read_next_attention();
    insert_cursor(std::move(first));
    return true;
  }

 private:
  // Read position in the documents of one part.
  struct DocumentCursor {
    const Journal* journal;
    std::size_t next = 0;  // index of the segment after `file`
    std::optional<DocumentRecordReader> file = {};
  };

  // Adds the cursor to order_ at the row of its next document, or drops it if no document is left.
  void insert_cursor(DocumentCursor cursor) {
    auto& file = cursor.file;
    const auto& entries = cursor.journal->entries();
    while ((!file || file->at_end()) && cursor.next < entries.size()) {
      const auto path = segment_path_with_suffix(*cursor.journal, entries[cursor.next++].segment,
                                                 layout::kDocumentsSuffix);
      file.reset();
      if (path_exists(path)) file.emplace(path);
    }
    if (!file || file->at_end()) return;
    const auto row = file->row_of_next_document();
    order_.emplace(row, std::move(cursor));
  }

  std::multimap<std::int64_t, DocumentCursor> order_;  // by dataset row of the next document
};

}  // namespace

StatsPartWriter::StatsPartWriter(Journal& journal, StatsRunState fresh)
    : journal_(journal),
      state_(has_segments() ? load_last_stats_state(journal) : std::move(fresh)) {
  done_.examples = journal.example_count();
  done_.tokens = journal.token_count();
}

void StatsPartWriter::add_batch(const ExampleBatch& prepared,
                                std::vector<DocumentRecord> documents) {
  for (const auto& example : prepared.examples) examples_.push_back(example.record);
  std::move(documents.begin(), documents.end(), std::back_inserter(documents_));
  done_.examples += std::ssize(prepared.examples);
  done_.tokens += prepared.token_count();
  if (examples_.size() >= kSegmentExamples || Clock::now() - saved_ >= kSegmentTime) flush();
}

void StatsPartWriter::flush() {
  if (examples_.empty()) return;
  JournalEntry entry;
  entry.segment = segment_name(journal_.entries().size());
  save_stats_state(segment_path_with_suffix(journal_, entry.segment, layout::kStateSuffix), state_);
  if (!documents_.empty())
    save_document_records(
        segment_path_with_suffix(journal_, entry.segment, layout::kDocumentsSuffix), documents_);
  SegmentWriter segment(journal_.segment_path(entry.segment), journal_.manifest().groups.size());
  for (const auto& example : examples_) {
    segment.add_example(example);
    entry.tokens += example.tokens;
  }
  entry.examples = std::ssize(examples_);
  entry.checksum = segment.commit();
  journal_.append_entry(entry);
  const auto& entries = journal_.entries();
  if (entries.size() > kKeptStates)
    fs::remove(segment_path_with_suffix(journal_, entries[entries.size() - kKeptStates - 1].segment,
                                        layout::kStateSuffix));
  examples_.clear();
  documents_.clear();
  saved_ = Clock::now();
}

StatsRunState load_last_stats_state(const Journal& journal) {
  return load_stats_state(
      segment_path_with_suffix(journal, journal.entries().back().segment, layout::kStateSuffix));
}

std::unique_ptr<DocumentSource> open_part_documents(const std::vector<Journal>& parts) {
  return std::make_unique<MultiPartDocumentReader>(parts);
}

void save_stats_state(const std::string& path, const StatsRunState& state) {
  StatsArchiveWriter writer(path);
  writer(statistics_settings_to_json(state.statistics.settings).dump());
  serialize_value(writer, state.statistics);
  serialize_value(writer, state.shifts);
  writer.finish();
}

StatsRunState load_stats_state(const std::string& path) {
  StatsArchiveReader reader(path);
  StatsRunState state;
  std::string settings;
  reader(settings);
  serialize_value(reader, state.statistics);
  serialize_value(reader, state.shifts);
  reader.finish();
  state.statistics.settings = statistics_settings_from_json(parse_json(settings, path), path);
  return state;
}

void save_document_records(const std::string& path, const std::vector<DocumentRecord>& documents) {
  StatsArchiveWriter writer(path);
  serialize_value(writer, documents);
  writer.finish();
}

DocumentRecordReader::DocumentRecordReader(const std::string& path) : path_(path) {
  StatsArchiveReader reader(path);
  reader(left_);
  offset_ = reader.offset();
  if (left_ > 0) reader(row_);
}

DocumentAttention DocumentRecordReader::read_next_attention() {
  StatsArchiveReader reader(path_, offset_);
  DocumentRecord document;
  serialize_value(reader, document);
  offset_ = reader.offset();
  if (--left_ > 0) reader(row_);
  return std::move(document.attention);
}

}  // namespace qkscope
