#include "engine/statistics/statistics.h"

#include <algorithm>
#include <map>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/translate_exceptions.h"
#include "base/io/json.h"
#include "engine/statistics/attention_sums.h"
#include "engine/statistics/moments.h"
#include "engine/statistics/positions.h"

namespace qkscope {
namespace {

// Properties that two mergeable statistics must share, each with the name used in messages.
std::vector<std::pair<std::string, std::string>> merge_properties(const Statistics& s) {
  const auto meta = [&](const char* key) {
    const auto found = s.metadata.find(key);
    return found == s.metadata.end() ? std::string("unknown") : found->second;
  };
  const auto list = [](const auto& values) { return Json(values).dump(); };
  std::vector<std::string> moments;
  for (const auto& [key, layers] : s.moments)
    if (!layers.empty())
      moments.push_back(std::string(kind_name(key.first)) + "." +
                        std::string(stage_name(key.second)));
  return {{"model", meta("model")},
          {"commit", meta("commit")},
          {"dtype", meta("dtype")},
          {"first", std::to_string(s.settings.first)},
          {"buckets", std::to_string(s.settings.buckets)},
          {"bucket size", std::to_string(s.settings.bucket_size)},
          {"RoPE", list(s.ropes)},
          {"heads", list(std::vector{s.heads, s.key_heads, s.dim})},
          {"layers", list(s.layers)},
          {"layers of group A", list(s.moment_layers)},
          {"moments", list(moments)},
          {"bucket covariances", std::to_string(s.settings.bucket_covariance.size())},
          {"columns of groups B and C", list(s.attention.columns)}};
}

void check_mergeable(const Statistics& into, const Statistics& part, const std::string& where,
                     const std::string& part_where) {
  const auto there = merge_properties(into);
  const auto here = merge_properties(part);
  for (std::size_t i = 0; i < there.size(); ++i)
    if (there[i].second != here[i].second)
      bad_input(
          "{} and {} are not statistics of one thing: {} is {} in the first and {} in the second",
          where, part_where, there[i].first, there[i].second, here[i].second);
}

// Sums of `count` copies of the same rows.
ExactPositions times(const ExactPositions& sums, std::int64_t count) {
  return {sums.n * count, sums.t * count,  sums.tt * count,
          sums.u * count, sums.uu * count, sums.tu * count};
}

}  // namespace

std::string_view kind_name(VectorKind kind) {
  constexpr std::string_view kNames[] = {"q", "k", "v"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view stage_name(VectorStage stage) {
  return stage == VectorStage::pre ? "pre" : "post";
}

std::string_view set_name(RowSet set) {
  return set == RowSet::first ? "first" : "body";
}

HeadMoments all_rows(const LayerMoments& moments) {
  return translate_exceptions([&] {
    auto all = moments.first;
    merge(all, moments.body);
    return all;
  });
}

const LayerMoments* Statistics::find(VectorKind kind, VectorStage stage, std::int64_t layer) const {
  const auto of_kind = moments.find({kind, stage});
  const auto at = std::lower_bound(moment_layers.begin(), moment_layers.end(), layer);
  if (of_kind == moments.end() || of_kind->second.empty() || at == moment_layers.end() ||
      *at != layer)
    return nullptr;
  return &of_kind->second[as_index(at - moment_layers.begin())];
}

DocumentPositions positions_of(std::span<const std::int64_t> lengths, std::int64_t first,
                               std::int64_t bucket_size, std::int64_t buckets) {
  DocumentPositions sums;
  sums.buckets.resize(as_index(buckets));
  std::map<std::int64_t, std::int64_t> counts;  // number of documents by length
  for (const auto length : lengths) ++counts[length];
  PositionTable table;
  for (const auto& [length, count] : counts) {
    sums.first += times(table.range(0, std::min(first, length)), count);
    sums.body += times(table.range(first, length), count);
    for (std::int64_t bucket = 0; bucket < buckets; ++bucket) {
      const auto end =
          bucket + 1 == buckets ? length : std::min(length, (bucket + 1) * bucket_size);
      sums.buckets[as_index(bucket)] += times(table.range(bucket * bucket_size, end), count);
    }
  }
  return sums;
}

void merge_statistics(Statistics& into, const Statistics& part, const std::string& where,
                      const std::string& part_where) {
  check_mergeable(into, part, where, part_where);
  for (auto& [key, layers] : into.moments) {
    const auto& others = part.moments.at(key);
    for (std::size_t i = 0; i < layers.size(); ++i) merge(layers[i], others[i]);
  }
  if (!into.attention.empty()) merge(into.attention, part.attention);
  into.lengths.insert(into.lengths.end(), part.lengths.begin(), part.lengths.end());
  into.retrieval.insert(into.retrieval.end(), part.retrieval.begin(), part.retrieval.end());
  into.max_length = std::max(into.max_length, part.max_length);
  set_positions(into);
}

void set_positions(Statistics& statistics) {
  const auto& settings = statistics.settings;
  const auto sums =
      positions_of(statistics.lengths, settings.first, settings.bucket_size, settings.buckets);
  statistics.positions = {sums.first.sums(), sums.body.sums()};
  statistics.bucket_positions.clear();
  for (const auto& bucket : sums.buckets) statistics.bucket_positions.push_back(bucket.sums());
}

}  // namespace qkscope
