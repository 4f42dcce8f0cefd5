// Numbers per head: patterns in the style of DuoAttention, and retrieval heads.
#include <algorithm>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/io/output_file.h"
#include "capture/exports/consumers.h"
#include "engine/statistics/attention_sums.h"

namespace qkscope {
namespace {

// What a head pays to keys that are neither first nor last ones.
double stream_need(const AttentionStatistics& attention, std::int64_t layer, std::int64_t head) {
  const auto column = ColumnLayout::at(NearColumn::stream);
  return std::clamp(1 - column_value(attention, layer, head, -1, column).mean, 0.0, 1.0);
}

}  // namespace

std::string export_duo(const ExportInput& input) {
  const Statistics& s = input.statistics();
  if (s.attention.empty())
    bad_input("{}: these statistics have no attention (group B), which duo is about",
              input.options().statistics);
  std::string rows;
  const auto group = input.heads_per_key();
  for (std::int64_t layer = 0; layer < input.layers(); ++layer) {
    const auto found = std::find(s.layers.begin(), s.layers.end(), layer);
    for (std::int64_t key = 0; key < input.key_heads(); ++key) {
      double sum = 0;
      for (auto head = key * group; found != s.layers.end() && head < (key + 1) * group; ++head)
        sum += stream_need(s.attention, found - s.layers.begin(), head);
      rows += fmt::format("{}{}", key == 0 ? "" : "\t", sum / static_cast<double>(group));
    }
    rows += '\n';
  }
  const auto& folder = input.options().out;
  prepare_folder(input.options(), folder);
  write_file(folder + "/full_attention_heads.tsv", rows);
  const Json config = {{"sink_size", s.settings.stream_first},
                       {"recent_size", s.settings.stream_last}};
  write_file(folder + "/config.json", config.dump(2) + "\n");
  return folder;
}

std::string export_retrieval_heads(const ExportInput& input) {
  const Statistics& s = input.statistics();
  if (s.retrieval.empty())
    bad_input("{}: these statistics have no trials (stats.retrieval), from which the scores come",
              input.options().statistics);
  nlohmann::ordered_json heads = nlohmann::ordered_json::object();
  for (std::size_t layer = 0; layer < s.layers.size(); ++layer)
    for (std::int64_t head = 0; head < s.heads; ++head) {
      auto scores = nlohmann::ordered_json::array();
      const auto place = layer * static_cast<std::size_t>(s.heads) + static_cast<std::size_t>(head);
      for (const auto& trial : s.retrieval)
        if (trial.counts) scores.push_back(trial.score[place]);
      heads[fmt::format("{}-{}", s.layers[layer], head)] = std::move(scores);
    }
  if (heads.front().empty())
    bad_input(
        "{}: none of its {} trials counts: greedy decoding does not give the answers; see "
        "retrieval.parquet and stats.min_match",
        input.options().statistics, s.retrieval.size());
  prepare_file(input.options(), input.options().out);
  write_file(input.options().out, heads.dump() + "\n");
  return input.options().out;
}

}  // namespace qkscope
