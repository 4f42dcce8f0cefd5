// Per-head exports: DuoAttention patterns, retrieval heads, channel ranges of keys and values.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/io/output_file.h"
#include "capture/exports/export_input.h"
#include "engine/statistics/attention_sums.h"

namespace qkscope {
namespace {

void add_channel_ranges(SafetensorsBuilder& tensors, const std::string& prefix,
                        const HeadMoments& moments) {
  const auto fill = [&](const char* name, auto value) {
    Tensor& tensor = tensors.add(prefix + name, {moments.heads, moments.dim});
    for (std::int64_t i = 0; i < tensor.size(); ++i)
      tensor.data<float>()[i] = static_cast<float>(value(as_index(i)));
  };
  fill("min", [&](std::size_t i) { return moments.min[i]; });
  fill("max", [&](std::size_t i) { return moments.max[i]; });
  fill("absmax", [&](std::size_t i) { return std::max(-moments.min[i], moments.max[i]); });
  fill("mean", [&](std::size_t i) { return moments.mean[i]; });
  fill("std", [&](std::size_t i) {
    const auto channel = static_cast<std::int64_t>(i) % moments.dim;
    const auto head = static_cast<std::int64_t>(i) / moments.dim;
    const auto index =
        head * triangle_size(moments.dim) + triangle_index(moments.dim, channel, channel);
    return std::sqrt(moments.m2[as_index(index)] / static_cast<double>(moments.n() - 1));
  });
}

}  // namespace

std::string export_key_ranges(const ExportInput& input) {
  const auto& set = input.options().set;
  SafetensorsBuilder tensors;
  for (const auto layer : input.statistics().layers) {
    using enum VectorStage;
    const auto prefix = fmt::format("layers.{}.", layer);
    add_channel_ranges(tensors, prefix + "k.pre.", input.moments(VectorKind::key, pre, layer, set));
    add_channel_ranges(tensors, prefix + "k.post.",
                       input.moments(VectorKind::key, post, layer, set));
    add_channel_ranges(tensors, prefix + "v.pre.",
                       input.moments(VectorKind::value, pre, layer, set));
  }
  make_folder_for_output_file(input.options(), input.options().out);
  write_safetensors(input.options().out, tensors.named_tensors(),
                    {{"rope_style", input.statistics().interleaved ? "interleaved" : "half"},
                     {"stage", "pre: before RoPE; post: what enters the dot product"},
                     {"set", set},
                     {"model", input.model_name()}});
  return input.options().out;
}

std::string export_duo_attention(const ExportInput& input) {
  const Statistics& s = input.statistics();
  if (s.attention.empty())
    reject("{}: these statistics have no attention (group B), which duo is about",
           input.options().statistics);
  std::string rows;
  const auto group = input.query_heads_per_key_head();
  const auto stream = AttentionColumnLayout::offset(NearKeyColumn::stream);
  for (std::int64_t layer = 0; layer < input.layer_count(); ++layer) {
    const auto found = std::ranges::find(s.layers, layer);
    for (std::int64_t key = 0; key < input.key_head_count(); ++key) {
      double sum = 0;
      for (auto head = key * group; found != s.layers.end() && head < (key + 1) * group; ++head) {
        const auto layer_index = found - s.layers.begin();
        const auto mass = summarize_column(s.attention, layer_index, head, -1, stream).mean;
        sum += std::clamp(1 - mass, 0.0, 1.0);  // mass outside the sink and the recent keys
      }
      rows += fmt::format("{}{}", key == 0 ? "" : "\t", sum / static_cast<double>(group));
    }
    rows += '\n';
  }
  const auto& folder = input.options().out;
  make_output_folder(input.options(), folder);
  write_file(folder + "/full_attention_heads.tsv", rows);
  write_json_file(folder + "/config.json", {{"sink_size", s.settings.stream_first},
                                            {"recent_size", s.settings.stream_last}});
  return folder;
}

std::string export_retrieval_heads(const ExportInput& input) {
  const Statistics& s = input.statistics();
  if (s.retrieval.empty())
    reject("{}: these statistics have no trials (stats.retrieval), from which the scores come",
           input.options().statistics);
  nlohmann::ordered_json heads = nlohmann::ordered_json::object();
  for (std::size_t layer = 0; layer < s.layers.size(); ++layer)
    for (std::int64_t head = 0; head < s.heads; ++head) {
      auto scores = nlohmann::ordered_json::array();
      const auto index = layer * as_index(s.heads) + as_index(head);
      for (const auto& trial : s.retrieval)
        if (trial.counts) scores.push_back(trial.score[index]);
      heads[fmt::format("{}-{}", s.layers[layer], head)] = std::move(scores);
    }
  if (heads.front().empty())
    reject(
        "{}: none of its {} trials counts: greedy decoding does not give the answers; see "
        "retrieval.parquet and stats.min_match",
        input.options().statistics, s.retrieval.size());
  make_folder_for_output_file(input.options(), input.options().out);
  write_file(input.options().out, heads.dump() + "\n");
  return input.options().out;
}

}  // namespace qkscope
