#include <functional>

#include "base/core/error.h"
#include "base/io/json.h"
#include "capture/stats_format/stats_file.h"
#include "capture/stats_format/sums_layout.h"
#include "engine/statistics/attention_sums.h"
#include "engine/statistics/moments.h"
#include "input/checkpoint/safetensors.h"

namespace qkscope {
namespace {

using namespace sums_layout;

template <typename T>
void put_values(SafetensorsWriter& file, const std::vector<T>& values) {
  file.write(std::as_bytes(std::span(values)));
}

// Tensors to write and the functions that write their data.
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
  std::vector<TensorDeclaration> places_;
  std::vector<Write> writes_;
};

void add_moments(TensorList& list, const MomentKey& key, const std::vector<LayerMoments>& layers) {
  if (layers.empty()) return;
  const auto add_rows = [&](const std::string& name, RowSet set) {
    list.add(name, Shape{1}, std::vector<std::int64_t>{set_of(layers.front(), set).positions.n});
  };
  visit_moments(
      layers, key, add_rows, [&](const std::string& name, const Shape& shape, const auto& values) {
        using T = typename std::decay_t<decltype(values(layers.front()))>::value_type;
        list.add(name, DTypeOf<T>::value, shape, [&layers, values](SafetensorsWriter& file) {
          for (const auto& layer : layers) put_values(file, values(layer));
        });
      });
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

}  // namespace qkscope
