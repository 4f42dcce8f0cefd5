#include "statistics/stats_file.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_writer.h"
#include "core/edge.h"
#include "core/error.h"
#include "core/text.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/output_file.h"
#include "statistics/attention_sums.h"
#include "statistics/moments.h"
#include "statistics/positions.h"
#include "statistics/settings_json.h"
#include "statistics/stats_tables.h"

namespace qkscope {
namespace {

using MomentKey = std::pair<VectorKind, VectorStage>;

constexpr RowSet kSets[] = {RowSet::first, RowSet::body};

// ---- The fields of moments: one list for writing and for reading.

// A field of HeadMoments: (heads, width) numbers of each layer.
template <typename T>
struct MomentField {
  const char* name;
  std::vector<T> HeadMoments::*values;
  std::int64_t (*width)(std::int64_t dim);
};

std::int64_t one(std::int64_t) {
  return 1;
}
std::int64_t whole(std::int64_t dim) {
  return dim;
}

constexpr MomentField<double> kRealFields[] = {{"mean", &HeadMoments::mean, whole},
                                               {"m2", &HeadMoments::m2, triangle_size},
                                               {"ct", &HeadMoments::ct, whole},
                                               {"cu", &HeadMoments::cu, whole},
                                               {"m3", &HeadMoments::m3, whole},
                                               {"m4", &HeadMoments::m4, whole},
                                               {"norm_mean", &HeadMoments::norm_mean, one}};
constexpr MomentField<float> kFloatFields[] = {{"min", &HeadMoments::min, whole},
                                               {"max", &HeadMoments::max, whole},
                                               {"norm_max", &HeadMoments::norm_max, one}};

struct PositionField {
  const char* name;
  double PositionSums::*value;
};
constexpr PositionField kPositionFields[] = {{"t.mean", &PositionSums::t_mean},
                                             {"t.m2", &PositionSums::t_m2},
                                             {"u.mean", &PositionSums::u_mean},
                                             {"u.m2", &PositionSums::u_m2},
                                             {"tu.m2", &PositionSums::tu_m2}};

Shape shape_of(std::int64_t layers, std::int64_t heads, std::int64_t width) {
  return width == 1 ? Shape{layers, heads} : Shape{layers, heads, width};
}

std::string prefix_of(const MomentKey& key) {
  return fmt::format("{}.{}.", kind_name(key.first), stage_name(key.second));
}

const HeadMoments& set_of(const LayerMoments& layer, RowSet set) {
  return set == RowSet::first ? layer.first : layer.body;
}
HeadMoments& set_of(LayerMoments& layer, RowSet set) {
  return set == RowSet::first ? layer.first : layer.body;
}

// The sums of groups B and C under their names, in the order of the file.
template <typename Attention, typename Visit>
void visit_attention(Attention& a, const Visit& visit) {
  const auto columns = static_cast<std::int64_t>(a.columns.size());
  const auto values = static_cast<std::int64_t>(a.document_columns.size());
  visit("rows", Shape{a.buckets}, a.rows);
  visit("sum", Shape{a.layers, a.heads, a.buckets, columns}, a.sum);
  visit("square", Shape{a.layers, a.heads, a.buckets, columns}, a.square);
  visit("max_logit", Shape{a.layers, a.heads, a.buckets}, a.max_logit);
  visit("row_square", Shape{a.buckets + 1}, a.row_square);
  visit("document_square", Shape{a.layers, a.heads, a.buckets + 1, columns}, a.document_square);
  visit("document_cross", Shape{a.layers, a.heads, a.buckets + 1, columns}, a.document_cross);
  visit("document_counts", Shape{values}, a.document_counts);
  visit("document_sum", Shape{a.layers, a.heads, values}, a.document_sum);
  visit("document_sum_square", Shape{a.layers, a.heads, values}, a.document_sum_square);
}
template <typename Attention, typename Visit>
void visit_key_sums(Attention& a, const Visit& visit) {
  visit("key_mass", Shape{a.layers, a.heads, a.buckets}, a.key_mass);
  visit("key_observed", Shape{a.layers, a.heads, a.buckets}, a.key_observed);
}

// ---- Writing.

template <typename T>
void put_values(SafetensorsWriter& file, const std::vector<T>& values) {
  file.write(std::as_bytes(std::span(values)));
}

// Tensors that will be written, and how.
class TensorList {
 public:
  using Write = std::function<void(SafetensorsWriter&)>;

  void add(std::string name, DType dtype, const Shape& shape, Write write) {
    places_.push_back({std::move(name), dtype, shape});
    writes_.push_back(std::move(write));
  }
  template <typename T>
  void add(std::string name, const Shape& shape, std::vector<T> values) {
    QKSCOPE_ASSERT(shape.count() == std::ssize(values));
    add(std::move(name), DTypeOf<T>::value, shape,
        [values = std::move(values)](SafetensorsWriter& file) { put_values(file, values); });
  }
  // The vector must outlive the list.
  template <typename T>
  void borrow(std::string name, const Shape& shape, const std::vector<T>& values) {
    QKSCOPE_ASSERT(shape.count() == std::ssize(values));
    add(std::move(name), DTypeOf<T>::value, shape,
        [&values](SafetensorsWriter& file) { put_values(file, values); });
  }

  void write(const std::string& path, const Metadata& metadata) const {
    SafetensorsWriter file(path, places_, metadata);
    for (const auto& write : writes_) write(file);
    file.commit();
  }

 private:
  std::vector<TensorPlace> places_;
  std::vector<Write> writes_;
};

template <typename T>
void add_field(TensorList& list, const std::string& prefix, const std::vector<LayerMoments>& layers,
               RowSet set, const MomentField<T>& field) {
  const HeadMoments& any = set_of(layers.front(), set);
  const Shape shape = shape_of(std::ssize(layers), any.heads, field.width(any.dim));
  list.add(prefix + field.name, DTypeOf<T>::value, shape,
           [&layers, set, values = field.values](SafetensorsWriter& file) {
             for (const auto& layer : layers) put_values(file, set_of(layer, set).*values);
           });
}

// Of stage pre alone: post may hold copies of pre where nothing turns.
void add_pairs(TensorList& list, const std::string& prefix, const std::vector<LayerMoments>& layers,
               RowSet set) {
  const HeadMoments& any = set_of(layers.front(), set);
  if (any.pairs == 0) return;
  list.add(prefix + "pair_abs", DType::f64, Shape{std::ssize(layers), any.heads, any.pairs},
           [&layers, set](SafetensorsWriter& file) {
             for (const auto& layer : layers) put_values(file, set_of(layer, set).pair_abs);
           });
}

void add_buckets(TensorList& list, const std::string& prefix,
                 const std::vector<LayerMoments>& layers) {
  const BucketMoments& any = layers.front().buckets;
  const auto add = [&](const char* name, std::vector<double> BucketMoments::*values,
                       std::int64_t width) {
    list.add(prefix + name, DType::f64, Shape{std::ssize(layers), any.heads, any.buckets, width},
             [&layers, values](SafetensorsWriter& file) {
               for (const auto& layer : layers) put_values(file, layer.buckets.*values);
             });
  };
  add("mean", &BucketMoments::mean, any.dim);
  add("m2", &BucketMoments::m2, any.dim);
  if (!any.cov.empty()) add("cov", &BucketMoments::cov, triangle_size(any.dim));
}

void add_moments(TensorList& list, const MomentKey& key, const std::vector<LayerMoments>& layers) {
  if (layers.empty()) return;
  for (const auto set : kSets) {
    const auto prefix = fmt::format("{}{}.", prefix_of(key), set_name(set));
    list.add(prefix + "n", Shape{1},
             std::vector<std::int64_t>{set_of(layers.front(), set).positions.n});
    for (const auto& field : kRealFields) add_field(list, prefix, layers, set, field);
    for (const auto& field : kFloatFields) add_field(list, prefix, layers, set, field);
    if (key.second == VectorStage::pre) add_pairs(list, prefix, layers, set);
  }
  add_buckets(list, prefix_of(key) + "bucket.", layers);
}

void add_positions(TensorList& list, const std::string& name,
                   std::span<const PositionSums> positions) {
  std::vector<std::int64_t> rows;
  for (const auto& sums : positions) rows.push_back(sums.n);
  const Shape shape{std::ssize(positions)};
  list.add("positions." + name + ".n", shape, std::move(rows));
  for (const auto& field : kPositionFields) {
    std::vector<double> values;
    for (const auto& sums : positions) values.push_back(sums.*field.value);
    list.add(fmt::format("positions.{}.{}", name, field.name), shape, std::move(values));
  }
}

// Metadata of the file that is read back; what else there is comes from the run.
namespace key {
constexpr char kFormat[] = "format";
constexpr char kLayers[] = "model_layers";
constexpr char kRopes[] = "rope";
constexpr char kRotary[] = "rotary_dims";
constexpr char kWindows[] = "windows";
constexpr char kRopeStyle[] = "rope_style";
constexpr char kSettings[] = "settings";
constexpr char kConfiguration[] = "configuration";
constexpr char kMaxLength[] = "max_length";
constexpr char kHeads[] = "num_heads";
constexpr char kKeyHeads[] = "num_kv_heads";
constexpr char kDim[] = "head_dim";
constexpr char kFirst[] = "first";      // beside the settings, for readers of the file
constexpr char kBuckets[] = "buckets";  // likewise
constexpr char kColumns[] = "attention_columns";
constexpr char kDocumentColumns[] = "attention_document_columns";
}  // namespace key
constexpr char kFormatName[] = "qkscope statistics 1";

Metadata file_metadata(const Statistics& s) {
  Metadata metadata = s.metadata;
  metadata[key::kFormat] = kFormatName;
  metadata[key::kLayers] = Json(s.layers).dump();
  metadata[key::kRopes] = Json(s.ropes).dump();
  metadata[key::kRotary] = Json(s.rotary).dump();
  metadata[key::kWindows] = Json(s.windows).dump();
  metadata[key::kRopeStyle] = s.interleaved ? "interleaved" : "half";
  metadata[key::kSettings] = settings_json(s.settings).dump();
  metadata[key::kConfiguration] = s.configuration;
  metadata[key::kMaxLength] = fmt::format("{}", s.max_length);
  metadata[key::kHeads] = fmt::format("{}", s.heads);
  metadata[key::kKeyHeads] = fmt::format("{}", s.key_heads);
  metadata[key::kDim] = fmt::format("{}", s.dim);
  metadata[key::kFirst] = fmt::format("{}", s.settings.first);
  metadata[key::kBuckets] = fmt::format("{}", s.settings.buckets);
  metadata[key::kColumns] = Json(s.attention.columns).dump();
  metadata[key::kDocumentColumns] = Json(s.attention.document_columns).dump();
  return metadata;
}

// ---- Reading.

class SumsReader {
 public:
  explicit SumsReader(const std::string& path) : path_(path), file_(path) {}

  Statistics read() {
    Statistics s;
    read_metadata(s);
    s.lengths = take<std::int64_t>("documents", Shape{size_of("documents")});
    s.moment_layers = take<std::int64_t>("layers", Shape{size_of("layers")});
    read_positions(s);
    for (const auto kind : {VectorKind::query, VectorKind::key, VectorKind::value})
      for (const auto stage : {VectorStage::pre, VectorStage::post})
        if (has(prefix_of({kind, stage}) + "body.mean")) read_moments(s, {kind, stage});
    if (!s.attention.columns.empty()) read_attention(s);
    return s;
  }

 private:
  bool has(const std::string& name) const { return file_.header().tensors.contains(name); }

  std::int64_t size_of(const std::string& name) const {
    const auto tensor = file_.tensor(name);
    if (tensor.rank() != 1)
      bad_input("{}: tensor {} has {} dimensions; expected 1", path_, in_quotes(name),
                tensor.rank());
    return tensor.dim(0);
  }

  template <typename T>
  const T* data(const std::string& name, const Shape& shape) const {
    const auto tensor = file_.tensor(name);
    if (tensor.dtype() != DTypeOf<T>::value || !(tensor.shape() == shape))
      bad_input("{}: tensor {} is {} {}; expected {} {}", path_, in_quotes(name),
                dtype_name(tensor.dtype()), tensor.shape().to_string(),
                dtype_name(DTypeOf<T>::value), shape.to_string());
    return tensor.data<T>();
  }
  template <typename T>
  std::vector<T> take(const std::string& name, const Shape& shape) const {
    const T* values = data<T>(name, shape);
    return {values, values + shape.count()};
  }

  const std::string& text(const char* name) const {
    const auto found = file_.header().metadata.find(name);
    if (found == file_.header().metadata.end())
      bad_input("{}: its metadata has no {}; expected a file of `qkscope stats`", path_,
                in_quotes(name));
    return found->second;
  }
  std::int64_t number(const char* name) const {
    const auto value = parse_integer(text(name), path_ + ": " + name);
    if (value < 0 || value > std::int64_t{1} << 40)
      bad_input("{}: {} is {}; expected a size", path_, name, value);
    return value;
  }
  template <typename T>
  std::vector<T> list(const char* name) const try {
    return parse_json(text(name), path_ + " (" + name + ")").get<std::vector<T>>();
  } catch (const Json::exception&) {
    bad_input("{}: {} in its metadata is not a list as expected; the file is damaged", path_, name);
  }

  void read_metadata(Statistics& s) const {
    if (text(key::kFormat) != kFormatName)
      bad_input("{}: its format is {}; expected {}", path_, in_quotes(text(key::kFormat)),
                in_quotes(kFormatName));
    s.metadata = file_.header().metadata;
    s.layers = list<std::int64_t>(key::kLayers);
    s.ropes = list<std::string>(key::kRopes);
    s.rotary = list<std::int64_t>(key::kRotary);
    s.windows = list<std::int64_t>(key::kWindows);
    for (const auto size : {s.ropes.size(), s.rotary.size(), s.windows.size()})
      if (size != s.layers.size())
        bad_input(
            "{}: its metadata tells of {} layers in one place and {} in another; the file is "
            "damaged",
            path_, s.layers.size(), size);
    s.interleaved = text(key::kRopeStyle) == "interleaved";
    s.settings = settings_from_json(
        parse_json(text(key::kSettings), path_ + " (" + key::kSettings + ")"), path_);
    s.configuration = text(key::kConfiguration);
    s.max_length = number(key::kMaxLength);
    s.heads = number(key::kHeads);
    s.key_heads = number(key::kKeyHeads);
    s.dim = number(key::kDim);
    if (s.key_heads < 1 || s.heads % s.key_heads != 0 || s.dim < 1 || s.settings.bucket_size < 1)
      bad_input(
          "{}: {} query heads, {} key heads, {} dimensions, buckets of {}; the file is "
          "damaged",
          path_, s.heads, s.key_heads, s.dim, s.settings.bucket_size);
    s.attention.columns = list<std::string>(key::kColumns);
    s.attention.document_columns = list<std::string>(key::kDocumentColumns);
    for (const char* own :
         {key::kFormat, key::kLayers, key::kRopes, key::kRotary, key::kWindows, key::kRopeStyle,
          key::kSettings, key::kConfiguration, key::kMaxLength, key::kHeads, key::kKeyHeads,
          key::kDim, key::kFirst, key::kBuckets, key::kColumns, key::kDocumentColumns})
      s.metadata.erase(own);
  }

  // Exact from the list of lengths; the file must agree.
  void read_positions(Statistics& s) const {
    for (const auto length : s.lengths)
      if (length < 0 || length > s.max_length)
        bad_input("{}: a document has {} tokens; expected at most {}", path_, length, s.max_length);
    const auto exact =
        positions_of(s.lengths, s.settings.first, s.settings.bucket_size, s.settings.buckets);
    s.positions = {exact.first.sums(), exact.body.sums()};
    for (const auto& bucket : exact.buckets) s.bucket_positions.push_back(bucket.sums());
    for (const auto set : kSets)
      check_rows(s.positions[static_cast<std::size_t>(set)],
                 fmt::format("positions.{}.n", set_name(set)));
  }
  void check_rows(const PositionSums& expected, const std::string& name) const {
    const auto found = *data<std::int64_t>(name, Shape{1});
    if (found != expected.n)
      bad_input("{}: {} is {}, but its documents have {} such tokens; the file is damaged", path_,
                name, found, expected.n);
  }

  template <typename T>
  void read_field(const std::string& prefix, const MomentField<T>& field, RowSet set,
                  std::vector<LayerMoments>& layers) const {
    const HeadMoments& any = set_of(layers.front(), set);
    const auto width = field.width(any.dim);
    const T* values = data<T>(prefix + field.name, shape_of(std::ssize(layers), any.heads, width));
    for (auto& layer : layers) {
      (set_of(layer, set).*field.values).assign(values, values + any.heads * width);
      values += any.heads * width;
    }
  }

  // Rotary pairs, the same number in all layers; 0 where they were not kept.
  std::int64_t pairs_of(const std::string& prefix) const {
    const auto found = file_.header().tensors.find(prefix + "body.pair_abs");
    if (found == file_.header().tensors.end() || found->second.shape.empty()) return 0;
    return found->second.shape.back();
  }

  void read_pairs(const std::string& prefix, RowSet set, std::vector<LayerMoments>& layers) const {
    const HeadMoments& any = set_of(layers.front(), set);
    if (any.pairs == 0) return;
    const auto size = any.heads * any.pairs;
    const double* values =
        data<double>(prefix + "pair_abs", Shape{std::ssize(layers), any.heads, any.pairs});
    for (auto& layer : layers) {
      set_of(layer, set).pair_abs.assign(values, values + size);
      values += size;
    }
  }

  void read_buckets(const std::string& prefix, const Statistics& s,
                    std::vector<LayerMoments>& layers) const {
    const BucketMoments any = layers.front().buckets;
    const auto read = [&](const char* name, std::vector<double> BucketMoments::*values,
                          std::int64_t width) {
      const double* from =
          data<double>(prefix + name, Shape{std::ssize(layers), any.heads, any.buckets, width});
      const auto size = any.heads * any.buckets * width;
      for (auto& layer : layers) {
        (layer.buckets.*values).assign(from, from + size);
        from += size;
      }
    };
    read("mean", &BucketMoments::mean, any.dim);
    read("m2", &BucketMoments::m2, any.dim);
    if (!any.cov.empty()) read("cov", &BucketMoments::cov, triangle_size(any.dim));
    for (auto& layer : layers)
      for (std::size_t b = 0; b < layer.buckets.n.size(); ++b)
        layer.buckets.n[b] = s.bucket_positions[b].n;
  }

  void read_moments(Statistics& s, const MomentKey& key) const {
    const auto prefix = prefix_of(key);
    const auto pairs = pairs_of(prefix);
    std::vector<LayerMoments> layers;
    for (const auto layer : s.moment_layers) {
      if (std::find(s.layers.begin(), s.layers.end(), layer) == s.layers.end())
        bad_input("{}: layer {} has moments, but is none of the model's; the file is damaged",
                  path_, layer);
      layers.push_back(empty_layer({key.first == VectorKind::query ? s.heads : s.key_heads, s.dim,
                                    pairs, s.settings.buckets, has(prefix + "bucket.cov")}));
      for (const auto set : kSets)
        set_of(layers.back(), set).positions = s.positions[static_cast<std::size_t>(set)];
    }
    if (layers.empty()) return;
    for (const auto set : kSets) {
      const auto of_set = fmt::format("{}{}.", prefix, set_name(set));
      check_rows(s.positions[static_cast<std::size_t>(set)], of_set + "n");
      for (const auto& field : kRealFields) read_field(of_set, field, set, layers);
      for (const auto& field : kFloatFields) read_field(of_set, field, set, layers);
      read_pairs(of_set, set, layers);
    }
    read_buckets(prefix + "bucket.", s, layers);
    s.moments[key] = std::move(layers);
  }

  void read_attention(Statistics& s) const {
    AttentionStatistics& a = s.attention;
    if (a.columns != column_names(s.settings))
      bad_input(
          "{}: its columns of attention are not those of its settings; the file is of "
          "another version: make the statistics again",
          path_);
    a.layers = std::ssize(s.layers);
    a.heads = s.heads;
    a.buckets = s.settings.buckets;
    a.documents = std::ssize(s.lengths);
    const auto visit = [&](const char* name, const Shape& shape, auto& values) {
      using T = typename std::decay_t<decltype(values)>::value_type;
      values = take<T>(fmt::format("attention.{}", name), shape);
    };
    visit_attention(a, visit);
    if (s.settings.all_keys) visit_key_sums(a, visit);
  }

  std::string path_;
  SafetensorsFile file_;
};

// ---- The state file.

std::int64_t token_count(const Statistics& statistics) {
  return std::accumulate(statistics.lengths.begin(), statistics.lengths.end(), std::int64_t{0});
}

// Name → size of every file in the folder and the folders in it.
Json file_sizes(const std::string& folder) {
  namespace fs = std::filesystem;
  Json sizes = Json::object();
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      sizes[fs::relative(entry.path(), folder).generic_string()] = entry.file_size();
  return sizes;
}

void write_state(const std::string& folder, const Statistics& s) {
  const Json state = {{"format", kFormatName},
                      {"documents", s.lengths.size()},
                      {"tokens", token_count(s)},
                      {"metadata", s.metadata},
                      {"settings", settings_json(s.settings)},
                      {"configuration", parse_json(s.configuration, "configuration")},
                      {"files", file_sizes(folder)}};
  write_file(folder + "/" + stats_layout::kStateFile,
             state.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void check_files(const std::string& folder) {
  const auto file = folder + "/" + stats_layout::kStateFile;
  if (!path_exists(file))
    bad_input(
        "{}: there is no {}: no statistics, or such that are not finished; expected the "
        "folder of a finished `qkscope stats`",
        folder, stats_layout::kStateFile);
  const Json state = load_json(file);
  if (!state.is_object() || !state.contains("files") || !state["files"].is_object())
    bad_input("{}: has no list of files; it is damaged", file);
  for (const auto& [name, size] : state["files"].items()) {
    std::error_code error;
    const auto found = std::filesystem::file_size(folder + "/" + name, error);
    if (error) bad_input("{}/{}: is missing; make the statistics again", folder, name);
    if (size != found)
      bad_input("{}/{}: has {} bytes, but {} says {}; make the statistics again", folder, name,
                found, stats_layout::kStateFile, size.dump());
  }
}

}  // namespace

void write_sums(const std::string& path, const Statistics& s) {
  TensorList list;
  list.borrow("layers", Shape{std::ssize(s.moment_layers)}, s.moment_layers);
  list.borrow("documents", Shape{std::ssize(s.lengths)}, s.lengths);
  for (const auto set : kSets)
    add_positions(list, std::string(set_name(set)),
                  std::span(s.positions).subspan(static_cast<std::size_t>(set), 1));
  add_positions(list, "bucket", s.bucket_positions);
  for (const auto& [key, layers] : s.moments) add_moments(list, key, layers);
  const auto visit = [&](const char* name, const Shape& shape, const auto& values) {
    list.borrow(fmt::format("attention.{}", name), shape, values);
  };
  if (!s.attention.empty()) visit_attention(s.attention, visit);
  if (!s.attention.key_mass.empty()) visit_key_sums(s.attention, visit);
  list.write(path, file_metadata(s));
}

Statistics read_sums(const std::string& path) {
  return SumsReader(path).read();
}

void write_statistics(const std::string& folder, const Statistics& statistics,
                      DocumentSource& documents) {
  write_sums(folder + "/" + stats_layout::kSumsFile, statistics);
  write_tables(folder, statistics, documents);
  write_state(folder, statistics);
}

Statistics read_statistics(const std::string& folder, Version headers) {
  return at_edge([&] {
    check_version(headers);
    check_files(folder);
    Statistics statistics = read_sums(folder + "/" + stats_layout::kSumsFile);
    statistics.retrieval = read_retrieval(folder, statistics);
    return statistics;
  });
}

}  // namespace qkscope
