// Tensor names and metadata keys of stats.safetensors, shared by writer and reader.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "qkscope/statistics.h"
#include "qkscope/tensor.h"

namespace qkscope {

namespace sums_layout {

using MomentKey = std::pair<VectorKind, VectorStage>;

inline constexpr RowSet kSets[] = {RowSet::first, RowSet::body};

// A field of HeadMoments, stored as a tensor of shape (layers, heads, width).
template <typename T>
struct MomentField {
  const char* name;
  std::vector<T> HeadMoments::*values;
  std::int64_t (*width)(std::int64_t dim);
};

inline std::int64_t one(std::int64_t) {
  return 1;
}
inline std::int64_t whole(std::int64_t dim) {
  return dim;
}

inline constexpr MomentField<double> kRealFields[] = {{"mean", &HeadMoments::mean, whole},
                                                      {"m2", &HeadMoments::m2, triangle_size},
                                                      {"ct", &HeadMoments::ct, whole},
                                                      {"cu", &HeadMoments::cu, whole},
                                                      {"m3", &HeadMoments::m3, whole},
                                                      {"m4", &HeadMoments::m4, whole},
                                                      {"norm_mean", &HeadMoments::norm_mean, one}};
inline constexpr MomentField<float> kFloatFields[] = {{"min", &HeadMoments::min, whole},
                                                      {"max", &HeadMoments::max, whole},
                                                      {"norm_max", &HeadMoments::norm_max, one}};

struct PositionField {
  const char* name;
  double PositionSums::*value;
};
inline constexpr PositionField kPositionFields[] = {{"t.mean", &PositionSums::t_mean},
                                                    {"t.m2", &PositionSums::t_m2},
                                                    {"u.mean", &PositionSums::u_mean},
                                                    {"u.m2", &PositionSums::u_m2},
                                                    {"tu.m2", &PositionSums::tu_m2}};

inline Shape shape_of(std::int64_t layers, std::int64_t heads, std::int64_t width) {
  return width == 1 ? Shape{layers, heads} : Shape{layers, heads, width};
}

inline std::string prefix_of(const MomentKey& key) {
  return fmt::format("{}.{}.", kind_name(key.first), stage_name(key.second));
}

inline const HeadMoments& set_of(const LayerMoments& layer, RowSet set) {
  return set == RowSet::first ? layer.first : layer.body;
}
inline HeadMoments& set_of(LayerMoments& layer, RowSet set) {
  return set == RowSet::first ? layer.first : layer.body;
}

// Visits the tensors of the moments of one kind and stage in file order. Calls rows(name, set) for
// the number of rows, and visit(name, shape, values) for each tensor, where values(layer) returns
// the slice of one layer.
template <typename Layers, typename Rows, typename Visit>
void visit_moments(Layers& layers, const MomentKey& key, const Rows& rows, const Visit& visit) {
  const auto count = std::ssize(layers);
  for (const auto set : kSets) {
    const auto prefix = fmt::format("{}{}.", prefix_of(key), set_name(set));
    const HeadMoments& any = set_of(layers.front(), set);
    const auto visit_field = [&](const auto& field) {
      visit(
          prefix + field.name, shape_of(count, any.heads, field.width(any.dim)),
          [ set, values = field.values ](auto& layer) -> auto& {
            return set_of(layer, set).*values;
          });
    };
    rows(prefix + "n", set);
    for (const auto& field : kRealFields) visit_field(field);
    for (const auto& field : kFloatFields) visit_field(field);
    if (any.pairs > 0 && key.second == VectorStage::pre)  // post may hold copies of pre
      visit(
          prefix + "pair_abs", Shape{count, any.heads, any.pairs}, [set](auto& layer) -> auto& {
            return set_of(layer, set).pair_abs;
          });
  }
  const BucketMoments& any = layers.front().buckets;
  const auto visit_bucket = [&](const char* name, std::vector<double> BucketMoments::*values,
                                std::int64_t width) {
    visit(
        prefix_of(key) + "bucket." + name,
        Shape{count, any.heads, any.buckets, width}, [values](auto& layer) -> auto& {
          return layer.buckets.*values;
        });
  };
  visit_bucket("mean", &BucketMoments::mean, any.dim);
  visit_bucket("m2", &BucketMoments::m2, any.dim);
  if (!any.cov.empty()) visit_bucket("cov", &BucketMoments::cov, triangle_size(any.dim));
}

// Visits the tensors of groups B and C in file order.
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

// Metadata keys that the reader interprets. The file may hold more metadata of the run.
namespace key {
inline constexpr char kFormat[] = "format";
inline constexpr char kLayers[] = "model_layers";
inline constexpr char kRopes[] = "rope";
inline constexpr char kRotary[] = "rotary_dims";
inline constexpr char kWindows[] = "windows";
inline constexpr char kRopeStyle[] = "rope_style";
inline constexpr char kSettings[] = "settings";
inline constexpr char kConfiguration[] = "configuration";
inline constexpr char kMaxLength[] = "max_length";
inline constexpr char kHeads[] = "num_heads";
inline constexpr char kKeyHeads[] = "num_kv_heads";
inline constexpr char kDim[] = "head_dim";
inline constexpr char kFirst[] = "first";      // repeats a setting for other programs
inline constexpr char kBuckets[] = "buckets";  // repeats a setting for other programs
inline constexpr char kColumns[] = "attention_columns";
inline constexpr char kDocumentColumns[] = "attention_document_columns";
}  // namespace key
inline constexpr char kFormatName[] = "qkscope statistics 1";

}  // namespace sums_layout
}  // namespace qkscope
