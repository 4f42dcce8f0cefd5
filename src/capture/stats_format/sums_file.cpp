// Writes and reads stats.safetensors: the sums of statistics as tensors, and settings as metadata.
#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/json.h"
#include "capture/stats_format/stats_file.h"
#include "engine/statistics/attention_sums.h"
#include "engine/statistics/moments.h"
#include "input/checkpoint/safetensors.h"
#include "qkscope/tensor.h"

namespace qkscope {
namespace {

// ---- File layout: lists of tensors and metadata, shared by the writer and the reader ----

using MomentKey = std::pair<VectorKind, VectorStage>;

constexpr RowSet kSets[] = {RowSet::first, RowSet::body};

std::string tensor_name_prefix(const MomentKey& key) {
  return fmt::format("{}.{}.", kind_name(key.first), stage_name(key.second));
}

template <typename Layer>
auto& row_set_moments(Layer& layer, RowSet set) {
  return set == RowSet::first ? layer.first : layer.body;
}

// Visits the moment tensors of one vector kind (q, k, v) and stage (pre or post RoPE) in file
// order. Calls rows(name, set) for the row count of each set and visit(name, shape, values) for
// each tensor; values(layer) is the slice of a layer.
template <typename Layers, typename Rows, typename Visit>
void visit_moment_tensors(Layers& layers, const MomentKey& key, const Rows& rows,
                          const Visit& visit) {
  const auto count = std::ssize(layers);
  for (const auto set : kSets) {
    const auto prefix = fmt::format("{}{}.", tensor_name_prefix(key), set_name(set));
    const HeadMoments& any = row_set_moments(layers.front(), set);
    const auto visit_field = [&](const char* name, auto values, const Shape& shape) {
      visit(
          prefix + name, shape,
          [ set, values ](auto& layer) -> auto& { return row_set_moments(layer, set).*values; });
    };
    const Shape per_head{count, any.heads};
    const Shape per_channel{count, any.heads, any.dim};
    rows(prefix + "n", set);
    visit_field("mean", &HeadMoments::mean, per_channel);
    visit_field("m2", &HeadMoments::m2, {count, any.heads, triangle_size(any.dim)});
    visit_field("ct", &HeadMoments::ct, per_channel);
    visit_field("cu", &HeadMoments::cu, per_channel);
    visit_field("m3", &HeadMoments::m3, per_channel);
    visit_field("m4", &HeadMoments::m4, per_channel);
    visit_field("norm_mean", &HeadMoments::norm_mean, per_head);
    visit_field("min", &HeadMoments::min, per_channel);
    visit_field("max", &HeadMoments::max, per_channel);
    visit_field("norm_max", &HeadMoments::norm_max, per_head);
    if (any.pairs > 0 && key.second == VectorStage::pre)  // `post` may copy `pre`
      visit_field("pair_abs", &HeadMoments::pair_abs, {count, any.heads, any.pairs});
  }
  const BucketMoments& any = layers.front().buckets;
  const auto visit_bucket = [&](const char* name, std::vector<double> BucketMoments::*values,
                                std::int64_t width) {
    visit(
        tensor_name_prefix(key) + "bucket." + name,
        Shape{count, any.heads, any.buckets, width}, [values](auto& layer) -> auto& {
          return layer.buckets.*values;
        });
  };
  visit_bucket("mean", &BucketMoments::mean, any.dim);
  visit_bucket("m2", &BucketMoments::m2, any.dim);
  if (!any.cov.empty()) visit_bucket("cov", &BucketMoments::cov, triangle_size(any.dim));
}

// Visits the attention tensors in file order; the last two exist only if `key_sums` is true.
template <typename Attention, typename Visit>
void visit_attention_tensors(Attention& a, bool key_sums, const Visit& visit) {
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
  if (!key_sums) return;
  visit("key_mass", Shape{a.layers, a.heads, a.buckets}, a.key_mass);
  visit("key_observed", Shape{a.layers, a.heads, a.buckets}, a.key_observed);
}

// Metadata keys that do not correspond to a single field of Statistics. A run may add other keys.
constexpr char kFormat[] = "format";
constexpr char kRopeStyle[] = "rope_style";
constexpr char kSettings[] = "settings";
constexpr char kFirst[] = "first";      // repeats a setting for other programs
constexpr char kBuckets[] = "buckets";  // repeats a setting for other programs

template <typename S, typename Visit>
void visit_metadata_fields(S& s, const Visit& visit) {
  visit("model_layers", s.layers);
  visit("rope", s.ropes);
  visit("rotary_dims", s.rotary);
  visit("windows", s.windows);
  visit("configuration", s.configuration);
  visit("max_length", s.max_length);
  visit("num_heads", s.heads);
  visit("num_kv_heads", s.key_heads);
  visit("head_dim", s.dim);
  visit("attention_columns", s.attention.columns);
  visit("attention_document_columns", s.attention.document_columns);
}

// ---- Writing ----

// Tensors to be declared in a safetensors file, and the functions that write their data.
class TensorList {
 public:
  using Write = std::function<void(SafetensorsWriter&)>;

  void add(std::string name, DType dtype, const Shape& shape, Write write) {
    places_.push_back({std::move(name), dtype, shape});
    writes_.push_back(std::move(write));
  }
  // `values` is a vector, or a span over memory that must outlive the list.
  template <typename Values>
  void add(std::string name, const Shape& shape, Values values) {
    QKSCOPE_ASSERT(shape.count() == std::ssize(values));
    add(std::move(name), DTypeOf<typename Values::value_type>::value, shape,
        [values = std::move(values)](SafetensorsWriter& file) {
          file.write(std::as_bytes(std::span(values)));
        });
  }

  void write(const std::string& path, const Metadata& metadata) const {
    SafetensorsWriter file(path, places_, metadata);
    for (const auto& write : writes_) write(file);
    file.commit();
  }

 private:
  std::vector<OutputTensorSpec> places_;
  std::vector<Write> writes_;
};

void add_moment_tensors(TensorList& list, const MomentKey& key,
                        const std::vector<LayerMoments>& layers) {
  if (layers.empty()) return;
  const auto add_rows = [&](const std::string& name, RowSet set) {
    list.add(name, Shape{1},
             std::vector<std::int64_t>{row_set_moments(layers.front(), set).positions.n});
  };
  visit_moment_tensors(
      layers, key, add_rows, [&](const std::string& name, const Shape& shape, const auto& values) {
        using T = typename std::decay_t<decltype(values(layers.front()))>::value_type;
        list.add(name, DTypeOf<T>::value, shape, [&layers, values](SafetensorsWriter& file) {
          for (const auto& layer : layers) file.write(std::as_bytes(std::span(values(layer))));
        });
      });
}

void add_position_tensors(TensorList& list, const std::string& name,
                          std::span<const PositionSums> positions) {
  const Shape shape{std::ssize(positions)};
  list.add("positions." + name + ".n", shape, to_vector(positions, &PositionSums::n));
  const auto add_field = [&](const char* field, double PositionSums::*value) {
    list.add(fmt::format("positions.{}.{}", name, field), shape, to_vector(positions, value));
  };
  add_field("t.mean", &PositionSums::t_mean);
  add_field("t.m2", &PositionSums::t_m2);
  add_field("u.mean", &PositionSums::u_mean);
  add_field("u.m2", &PositionSums::u_m2);
  add_field("tu.m2", &PositionSums::tu_m2);
}

Metadata sums_file_metadata(const Statistics& s) {
  Metadata metadata = s.metadata;
  metadata[kFormat] = stats_layout::kFormatName;
  metadata[kRopeStyle] = s.interleaved ? "interleaved" : "half";
  metadata[kSettings] = statistics_settings_to_json(s.settings).dump();
  metadata[kFirst] = std::to_string(s.settings.first);
  metadata[kBuckets] = std::to_string(s.settings.buckets);
  visit_metadata_fields(s, [&](const char* name, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>)
      metadata[name] = value;
    else
      metadata[name] = Json(value).dump();
  });
  return metadata;
}

// ---- Reading ----

class SumsFileReader {
 public:
  explicit SumsFileReader(const std::string& path) : path_(path), file_(path) {}

  Statistics read() {
    Statistics s;
    read_metadata(s);
    s.lengths = read_tensor_values<std::int64_t>("documents", Shape{tensor_length("documents")});
    s.moment_layers = read_tensor_values<std::int64_t>("layers", Shape{tensor_length("layers")});
    read_positions(s);
    for (const auto kind : {VectorKind::query, VectorKind::key, VectorKind::value})
      for (const auto stage : {VectorStage::pre, VectorStage::post})
        if (has_tensor(tensor_name_prefix({kind, stage}) + "body.mean"))
          read_moments(s, {kind, stage});
    if (!s.attention.columns.empty()) read_attention(s);
    return s;
  }

 private:
  bool has_tensor(const std::string& name) const { return file_.header().tensors.contains(name); }

  std::int64_t tensor_length(const std::string& name) const {
    const auto tensor = file_.tensor(name);
    if (tensor.rank() != 1)
      reject("{}: tensor {} has {} dimensions; expected 1", path_, quote_text(name), tensor.rank());
    return tensor.dim(0);
  }

  template <typename T>
  const T* tensor_data(const std::string& name, const Shape& shape) const {
    const auto tensor = file_.tensor(name);
    if (tensor.dtype() != DTypeOf<T>::value || !(tensor.shape() == shape))
      reject("{}: tensor {} is {} {}; expected {} {}", path_, quote_text(name),
             dtype_name(tensor.dtype()), tensor.shape().to_string(), dtype_name(DTypeOf<T>::value),
             shape.to_string());
    return tensor.data<T>();
  }
  template <typename T>
  std::vector<T> read_tensor_values(const std::string& name, const Shape& shape) const {
    const T* values = tensor_data<T>(name, shape);
    return {values, values + shape.count()};
  }

  const std::string& metadata_text(const char* name) const {
    const auto found = file_.header().metadata.find(name);
    if (found == file_.header().metadata.end())
      reject("{}: its metadata has no {}; expected a file of `qkscope stats`", path_,
             quote_text(name));
    return found->second;
  }
  void read_metadata_field(const char* name, std::string& out) const { out = metadata_text(name); }

  void read_metadata_field(const char* name, std::int64_t& value) const {
    value = parse_integer(metadata_text(name), path_ + ": " + name);
    if (value < 0 || value > std::int64_t{1} << 40)
      reject("{}: {} is {}; expected a size", path_, name, value);
  }

  template <typename T>
  void read_metadata_field(const char* name, std::vector<T>& value) const try {
    value = parse_json(metadata_text(name), path_ + " (" + name + ")").get<std::vector<T>>();
  } catch (const Json::exception&) {
    reject("{}: {} in its metadata is not a list as expected; the file is damaged", path_, name);
  }

  void read_metadata(Statistics& s) const {
    if (metadata_text(kFormat) != stats_layout::kFormatName)
      reject("{}: its format is {}; expected {}", path_, quote_text(metadata_text(kFormat)),
             quote_text(stats_layout::kFormatName));
    s.metadata = file_.header().metadata;
    visit_metadata_fields(s, [&](const char* name, auto& value) {
      read_metadata_field(name, value);
      s.metadata.erase(name);
    });
    for (const auto size : {s.ropes.size(), s.rotary.size(), s.windows.size()})
      if (size != s.layers.size())
        reject(
            "{}: its metadata tells of {} layers in one place and {} in another; the file is "
            "damaged",
            path_, s.layers.size(), size);
    s.interleaved = metadata_text(kRopeStyle) == "interleaved";
    s.settings = statistics_settings_from_json(
        parse_json(metadata_text(kSettings), path_ + " (" + kSettings + ")"), path_);
    if (s.key_heads < 1 || s.heads % s.key_heads != 0 || s.dim < 1 || s.settings.bucket_size < 1)
      reject("{}: {} query heads, {} key heads, {} dimensions, buckets of {}; the file is damaged",
             path_, s.heads, s.key_heads, s.dim, s.settings.bucket_size);
    for (const char* own : {kFormat, kRopeStyle, kSettings, kFirst, kBuckets})
      s.metadata.erase(own);
  }

  // Computes position sums from the document lengths; checks row counts in the file against them.
  void read_positions(Statistics& s) const {
    for (const auto length : s.lengths)
      if (length < 0 || length > s.max_length)
        reject("{}: a document has {} tokens; expected at most {}", path_, length, s.max_length);
    update_position_sums(s);
    for (const auto set : kSets)
      check_row_count(s, set, fmt::format("positions.{}.n", set_name(set)));
  }
  void check_row_count(const Statistics& s, RowSet set, const std::string& name) const {
    const auto found = *tensor_data<std::int64_t>(name, Shape{1});
    const auto expected = s.positions[static_cast<std::size_t>(set)].n;
    if (found != expected)
      reject("{}: {} is {}, but its documents have {} such tokens; the file is damaged", path_,
             name, found, expected);
  }

  void read_moments(Statistics& s, const MomentKey& key) const {
    const auto prefix = tensor_name_prefix(key);
    const auto& tensors = file_.header().tensors;
    const auto stored = tensors.find(prefix + "body.pair_abs");
    const bool has_pairs = stored != tensors.end() && !stored->second.shape.empty();
    const auto pairs = has_pairs ? stored->second.shape.back() : 0;  // the same in all layers
    std::vector<LayerMoments> layers;
    for (const auto layer : s.moment_layers) {
      if (std::ranges::find(s.layers, layer) == s.layers.end())
        reject("{}: layer {} has moments, but is none of the model's; the file is damaged", path_,
               layer);
      layers.push_back(
          make_layer_moments({key.first == VectorKind::query ? s.heads : s.key_heads, s.dim, pairs,
                              s.settings.buckets, has_tensor(prefix + "bucket.cov")}));
      for (const auto set : kSets)
        row_set_moments(layers.back(), set).positions = s.positions[static_cast<std::size_t>(set)];
    }
    if (layers.empty()) return;
    const auto check = [&](const std::string& name, RowSet set) { check_row_count(s, set, name); };
    visit_moment_tensors(
        layers, key, check, [&](const std::string& name, const Shape& shape, const auto& values) {
          using T = typename std::decay_t<decltype(values(layers.front()))>::value_type;
          const T* from = tensor_data<T>(name, shape);
          const auto size = shape.count() / std::ssize(layers);
          for (auto& layer : layers) {
            values(layer).assign(from, from + size);
            from += size;
          }
        });
    for (auto& layer : layers)
      for (std::size_t b = 0; b < layer.buckets.n.size(); ++b)
        layer.buckets.n[b] = s.bucket_positions[b].n;
    s.moments[key] = std::move(layers);
  }

  void read_attention(Statistics& s) const {
    AttentionStatistics& a = s.attention;
    auto names = attention_column_names(s.settings);
    if (a.columns.size() + 1 == names.size()) names.pop_back();  // older files lack sink_above_half
    if (a.columns != names)
      reject(
          "{}: its columns of attention are not those of its settings; the file is of "
          "another version: make the statistics again",
          path_);
    a.layers = std::ssize(s.layers);
    a.heads = s.heads;
    a.buckets = s.settings.buckets;
    a.documents = std::ssize(s.lengths);
    const auto visit = [&](const char* name, const Shape& shape, auto& values) {
      using T = typename std::decay_t<decltype(values)>::value_type;
      values = read_tensor_values<T>(fmt::format("attention.{}", name), shape);
    };
    visit_attention_tensors(a, has_key_sums(s.settings), visit);
  }

  std::string path_;
  SafetensorsFile file_;
};

}  // namespace

void write_accumulated_sums(const std::string& path, const Statistics& s) {
  TensorList list;
  list.add("layers", Shape{std::ssize(s.moment_layers)}, std::span(s.moment_layers));
  list.add("documents", Shape{std::ssize(s.lengths)}, std::span(s.lengths));
  for (const auto set : kSets)
    add_position_tensors(list, std::string(set_name(set)),
                         std::span(s.positions).subspan(static_cast<std::size_t>(set), 1));
  add_position_tensors(list, "bucket", s.bucket_positions);
  for (const auto& [key, layers] : s.moments) add_moment_tensors(list, key, layers);
  const auto visit = [&](const char* name, const Shape& shape, const auto& values) {
    list.add(fmt::format("attention.{}", name), shape, std::span(values));
  };
  if (!s.attention.empty())
    visit_attention_tensors(s.attention, !s.attention.key_mass.empty(), visit);
  list.write(path, sums_file_metadata(s));
}

Statistics read_accumulated_sums(const std::string& path) {
  return SumsFileReader(path).read();
}

}  // namespace qkscope
