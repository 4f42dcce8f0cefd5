#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "analysis/results/head_runner.h"
#include "analysis/results/row_builder.h"
#include "base/core/numbers.h"
#include "capture/stats_format/stats_tables.h"

namespace qkscope {
namespace {

using Column = Table::Column;

// Attention kind of every layer, as attention_name() returns it.
using AttentionOfLayer = std::map<std::int64_t, std::string>;

AttentionOfLayer attention_by_layer(const Statistics& s) {
  AttentionOfLayer names;
  for (std::size_t i = 0; i < s.layers.size(); ++i)
    names[s.layers[i]] = attention_name(
        s.windows[i] > 0 ? std::optional(static_cast<std::int32_t>(s.windows[i])) : std::nullopt);
  return names;
}

// Keeps the totals over all position buckets (null in the column "bucket") of the chosen heads, and
// adds the columns "model" in front and "attention" after "rope".
Table over_all_buckets(const Table& from, const AttentionOfLayer& attention,
                       const std::string& label,
                       const std::set<std::pair<std::int64_t, std::int64_t>>& heads) {
  std::vector<std::size_t> rows;
  const auto& layer = from.find("layer")->integers;
  const auto& head = from.find("head")->integers;
  const auto& bucket = from.find("bucket")->integers;
  for (std::size_t i = 0; i < bucket.size(); ++i)
    if (bucket[i] == Table::kNoInteger && heads.contains({layer[i], head[i]})) rows.push_back(i);
  std::vector<Column> columns = {
      {"model", Table::Type::text, {}, {}, std::vector<std::string>(rows.size(), label)}};
  for (const auto& column : from.columns()) {
    if (column.name == "bucket") continue;
    Column chosen{column.name, column.type, {}, {}, {}};
    for (const auto row : rows) {
      if (!column.integers.empty()) chosen.integers.push_back(column.integers[row]);
      if (!column.reals.empty()) chosen.reals.push_back(column.reals[row]);
      if (!column.texts.empty()) chosen.texts.push_back(column.texts[row]);
    }
    columns.push_back(std::move(chosen));
    if (column.name != "rope") continue;
    columns.push_back({"attention", Table::Type::text, {}, {}, {}});
    for (const auto row : rows) columns.back().texts.push_back(attention.at(layer[row]));
  }
  return Table(std::move(columns));
}

// Mean, standard deviation and range of every key channel, before and after RoPE.
Table key_channels(const Statistics& s, const AttentionOfLayer& attention, const std::string& label,
                   const std::set<int>& layers) {
  Table table = empty_result_table("key_channels");
  for (const auto stage : {VectorStage::pre, VectorStage::post})
    for (std::size_t i = 0; i < s.layers.size(); ++i) {
      const auto* found = s.find(VectorKind::key, stage, s.layers[i]);
      if (found == nullptr || !layers.contains(static_cast<int>(s.layers[i]))) continue;
      const HeadMoments m = all_rows(*found);
      for (std::int64_t place = 0; place < m.heads * m.dim; ++place) {
        const auto at = as_index(place);
        const auto head = place / m.dim;
        const auto channel = place % m.dim;
        const double square =
            m.m2[as_index(head * triangle_size(m.dim) + triangle_index(m.dim, channel, channel))];
        table.add(make_cells(
            label, s.layers[i], head, s.rotary[i] > 0 ? "rope" : "nope", attention.at(s.layers[i]),
            stage_name(stage), channel, m.mean[at],
            std::sqrt(square / static_cast<double>(std::max<std::int64_t>(1, m.n() - 1))),
            std::max(-m.min[at], m.max[at])));
      }
    }
  return table;
}

}  // namespace

std::vector<ResultTable> statistics_tables(const Statistics& s, const std::string& label,
                                           const std::vector<HeadId>& queries) {
  std::set<std::pair<std::int64_t, std::int64_t>> heads;
  std::set<int> layers;
  for (const auto& query : queries) {
    heads.insert({query.layer, query.head});
    layers.insert(query.layer);
  }
  const auto attention = attention_by_layer(s);
  std::vector<ResultTable> tables;
  if (!s.attention.empty())
    tables.push_back({"attention", over_all_buckets(attention_table(s), attention, label, heads)});
  if (!s.attention.empty() && s.settings.all_keys)
    tables.push_back({"distance", over_all_buckets(distance_table(s), attention, label, heads)});
  tables.push_back({"key_channels", key_channels(s, attention, label, layers)});
  return tables;
}

}  // namespace qkscope
