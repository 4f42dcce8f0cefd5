#include <algorithm>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/json.h"
#include "capture/stats_format/stats_file.h"
#include "capture/stats_format/sums_layout.h"
#include "engine/statistics/attention_sums.h"
#include "engine/statistics/moments.h"
#include "input/checkpoint/safetensors.h"

namespace qkscope {
namespace {

using namespace sums_layout;

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

  // Computes position sums from the document lengths and checks that the file agrees.
  void read_positions(Statistics& s) const {
    for (const auto length : s.lengths)
      if (length < 0 || length > s.max_length)
        bad_input("{}: a document has {} tokens; expected at most {}", path_, length, s.max_length);
    const auto exact =
        sum_positions(s.lengths, s.settings.first, s.settings.bucket_size, s.settings.buckets);
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

  // Number of rotary pairs, equal in all layers; 0 if pair_abs was not stored.
  std::int64_t pairs_of(const std::string& prefix) const {
    const auto found = file_.header().tensors.find(prefix + "body.pair_abs");
    if (found == file_.header().tensors.end() || found->second.shape.empty()) return 0;
    return found->second.shape.back();
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
    const auto check = [&](const std::string& name, RowSet set) {
      check_rows(s.positions[static_cast<std::size_t>(set)], name);
    };
    visit_moments(layers, key, check,
                  [&](const std::string& name, const Shape& shape, const auto& values) {
                    using T = typename std::decay_t<decltype(values(layers.front()))>::value_type;
                    const T* from = data<T>(name, shape);
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

}  // namespace

Statistics read_sums(const std::string& path) {
  return SumsReader(path).read();
}

}  // namespace qkscope
