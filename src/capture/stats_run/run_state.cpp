#include "capture/stats_run/run_state.h"

#include <cstring>
#include <span>
#include <type_traits>

#include "base/core/error.h"
#include "base/io/checksum.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "capture/stats_format/stats_file.h"

namespace qkscope {
namespace {

constexpr std::uint64_t kMagic = 0x3154415453535151;  // "QQSSTAT1"

template <typename T>
constexpr bool kIsPlain = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// Writer and Reader visit the same list of fields.
class Writer {
 public:
  explicit Writer(const std::string& path) : file_(path) { (*this)(kMagic); }

  template <typename T>
  void operator()(const T& value) requires kIsPlain<T> {
    put(&value, sizeof value);
  }
  void operator()(const std::string& text) {
    (*this)(static_cast<std::uint64_t>(text.size()));
    put(text.data(), text.size());
  }
  template <typename T>
  void operator()(const std::vector<T>& values) {
    (*this)(static_cast<std::uint64_t>(values.size()));
    if constexpr (kIsPlain<T>)
      put(values.data(), values.size() * sizeof(T));
    else
      for (const auto& value : values) visit(*this, value);
  }
  template <typename K, typename V>
  void operator()(const std::map<K, V>& values) {
    (*this)(static_cast<std::uint64_t>(values.size()));
    for (const auto& [key, value] : values) {
      visit(*this, key);
      visit(*this, value);
    }
  }

  void finish() {
    const auto check = sum_.value();
    put(&check, sizeof check);
    file_.commit();
  }

 private:
  void put(const void* data, std::size_t bytes) {
    const std::span piece(static_cast<const std::byte*>(data), bytes);
    sum_.add(piece);
    file_.write(piece);
  }

  OutputFile file_;
  Checksum sum_;
};

class Reader {
 public:
  // Continues at `offset` in a file whose checksum was verified before.
  Reader(const std::string& path, std::size_t offset) : file_(path), bytes_(file_.text()) {
    if (bytes_.size() < offset) damaged();
    bytes_.remove_prefix(offset);
  }
  explicit Reader(const std::string& path) : Reader(path, 0) {
    std::uint64_t check = 0;
    std::uint64_t magic = 0;
    if (bytes_.size() < sizeof check + sizeof magic) damaged();
    std::memcpy(&check, bytes_.data() + bytes_.size() - sizeof check, sizeof check);
    bytes_.remove_suffix(sizeof check);
    if (checksum_of(bytes_) != check) damaged();
    (*this)(magic);
    if (magic != kMagic) damaged();
  }

  template <typename T>
  void operator()(T& value) requires kIsPlain<T> {
    get(&value, sizeof value);
  }
  void operator()(std::string& text) {
    text.resize(count(1));
    get(text.data(), text.size());
  }
  template <typename T>
  void operator()(std::vector<T>& values) {
    if constexpr (kIsPlain<T>) {
      values.resize(count(sizeof(T)));
      get(values.data(), values.size() * sizeof(T));
    } else {
      values.resize(count(1));
      for (auto& value : values) visit(*this, value);
    }
  }
  template <typename K, typename V>
  void operator()(std::map<K, V>& values) {
    values.clear();
    for (auto left = count(1); left > 0; --left) {
      K key;
      visit(*this, key);
      visit(*this, values[key]);
    }
  }

  void finish() const {
    if (!bytes_.empty()) damaged();
  }
  std::size_t offset() const {
    return static_cast<std::size_t>(bytes_.data() - file_.text().data());
  }

 private:
  [[noreturn]] void damaged() const {
    bad_input("{}: is damaged; start again with --overwrite", file_.path());
  }
  // Reads a number of elements that need at least `bytes` bytes each.
  std::size_t count(std::size_t bytes) {
    std::uint64_t number = 0;
    (*this)(number);
    if (number > bytes_.size() / bytes) damaged();
    return static_cast<std::size_t>(number);
  }
  void get(void* data, std::size_t bytes) {
    if (bytes > bytes_.size()) damaged();
    if (bytes > 0) std::memcpy(data, bytes_.data(), bytes);
    bytes_.remove_prefix(bytes);
  }

  MappedFile file_;
  std::string_view bytes_;  // unread rest of the file
};

// Visits the fields of a struct in the order of the file.
template <typename Archive, typename... Fields>
void fields(Archive& archive, Fields&... values) {
  (visit(archive, values), ...);
}

template <typename Archive, typename T>
void visit(Archive& archive, T& value) {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Plain, PositionSums>)
    fields(archive, value.n, value.t_mean, value.t_m2, value.u_mean, value.u_m2, value.tu_m2);
  else if constexpr (std::is_same_v<Plain, HeadMoments>)
    fields(archive, value.heads, value.dim, value.pairs, value.positions, value.mean, value.m2,
           value.ct, value.cu, value.m3, value.m4, value.min, value.max, value.pair_abs,
           value.norm_mean, value.norm_max);
  else if constexpr (std::is_same_v<Plain, BucketMoments>)
    fields(archive, value.heads, value.buckets, value.dim, value.n, value.mean, value.m2,
           value.cov);
  else if constexpr (std::is_same_v<Plain, LayerMoments>)
    fields(archive, value.first, value.body, value.buckets);
  else if constexpr (std::is_same_v<Plain, AttentionStatistics>)
    fields(archive, value.columns, value.layers, value.heads, value.buckets, value.documents,
           value.rows, value.sum, value.square, value.max_logit, value.row_square,
           value.document_square, value.document_cross, value.document_columns,
           value.document_counts, value.document_sum, value.document_sum_square, value.key_mass,
           value.key_observed);
  else if constexpr (std::is_same_v<Plain, RetrievalTrial>)
    fields(archive, value.id, value.tokens, value.needle_begin, value.needle_end,
           value.greedy_match, value.counts, value.score);
  else if constexpr (std::is_same_v<Plain, DocumentRecord>)
    fields(archive, value.row, value.attention.example_key, value.attention.tokens,
           value.attention.mean, value.attention.values, value.attention.key_sums);
  else if constexpr (std::is_same_v<Plain, std::pair<VectorKind, VectorStage>>)
    fields(archive, value.first, value.second);
  else if constexpr (std::is_same_v<Plain, Statistics>)
    fields(archive, value.metadata, value.configuration, value.max_length, value.heads,
           value.key_heads, value.dim, value.layers, value.ropes, value.rotary, value.windows,
           value.interleaved, value.moment_layers, value.moments, value.attention, value.retrieval);
  else
    archive(value);
}

}  // namespace

void save_state(const std::string& path, const StatsRunState& state) {
  Writer writer(path);
  writer(settings_json(state.statistics.settings).dump());
  visit(writer, state.statistics);
  visit(writer, state.shifts);
  writer.finish();
}

StatsRunState load_state(const std::string& path) {
  Reader reader(path);
  StatsRunState state;
  std::string settings;
  reader(settings);
  visit(reader, state.statistics);
  visit(reader, state.shifts);
  reader.finish();
  state.statistics.settings = settings_from_json(parse_json(settings, path), path);
  return state;
}

void save_documents(const std::string& path, const std::vector<DocumentRecord>& documents) {
  Writer writer(path);
  visit(writer, documents);
  writer.finish();
}

DocumentFile::DocumentFile(const std::string& path) : path_(path) {
  Reader reader(path);
  reader(left_);
  offset_ = reader.offset();
  if (left_ > 0) reader(row_);
}

DocumentAttention DocumentFile::take() {
  Reader reader(path_, offset_);
  DocumentRecord document;
  visit(reader, document);
  offset_ = reader.offset();
  if (--left_ > 0) reader(row_);
  return std::move(document.attention);
}

}  // namespace qkscope
