#include "analysis/results/capture_heads.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/io/folder.h"
#include "capture/format/layout.h"
#include "input/hub/fetch.h"

namespace qkscope {
namespace {

std::vector<int> heads_in(const CaptureIndex& index, int layer) {
  std::vector<int> heads;
  for (const auto& query : index.queries)
    if (query.layer == layer) heads.push_back(query.head);
  return heads;
}

void check_layers(const CaptureIndex& index, const std::vector<int>& layers) {
  std::set<int> there;
  for (const auto& query : index.queries) there.insert(query.layer);
  for (const int layer : layers)
    if (!there.contains(layer))
      bad_input("{}: there is no layer {}; the capture has layers {}", index.data_root, layer,
                fmt::join(there, ", "));
}

void check_heads(const CaptureIndex& index, const std::vector<HeadId>& heads) {
  for (const auto& head : heads) {
    const auto there = heads_in(index, head.layer);
    if (there.empty()) check_layers(index, {head.layer});
    if (std::ranges::count(there, head.head) == 0)
      bad_input("{}: there is no query head {} in layer {}; the capture has heads {} there",
                index.data_root, head.head, head.layer, fmt::join(there, ", "));
  }
}

ModelConfig read_config(const std::string& name, bool quiet) {
  const auto at = path_exists(name) ? std::string::npos : name.find('@');
  const auto revision = at == std::string::npos ? "" : name.substr(at + 1);
  return read_model_config(fetch_config(name.substr(0, at), revision, {.quiet = quiet}));
}

}  // namespace

std::vector<HeadId> chosen_queries(const CaptureIndex& index, const AnalyzeOptions& options) {
  check_layers(index, options.layers);
  check_heads(index, options.heads);
  std::vector<HeadId> chosen;
  for (const auto& query : index.queries) {
    const auto& layers = options.layers;
    const auto& heads = options.heads;
    if ((layers.empty() || std::ranges::count(layers, query.layer) > 0) &&
        (heads.empty() || std::ranges::count(heads, query) > 0))
      chosen.push_back(query);
  }
  if (chosen.empty())
    bad_input("{}: the chosen layers and heads have no head in common", index.data_root);
  return chosen;
}

void keep_attention(std::vector<HeadId>& queries, const AnalyzeOptions& options,
                    const WindowOfLayer& window_of) {
  if (options.attention == AttentionKind::any) return;
  const bool sliding = options.attention == AttentionKind::sliding;
  std::map<int, bool> kept;
  for (const auto& query : queries)
    if (!kept.contains(query.layer))
      kept[query.layer] = window_of(query.layer).has_value() == sliding;
  std::erase_if(queries, [&](const HeadId& query) { return !kept[query.layer]; });
  if (queries.empty())
    bad_input("{}: none of the chosen layers has {} attention; leave out --attention",
              options.data_root, sliding ? "sliding" : "full");
}

ModelFacts::ModelFacts(const std::string& name, bool quiet)
    : name_(name), model_(read_config(name, quiet)) {}

HeadCounts ModelFacts::counts() const {
  return {static_cast<int>(model_.n_heads), static_cast<int>(model_.n_kv_heads)};
}

RopeInfo ModelFacts::rope(int layer) const {
  const auto* rope = model_.rope(layer);
  if (rope == nullptr) return {.use = RopeUse::nope, .inv_freq = {}};
  const auto frequencies = rope_frequencies(*rope, model_.max_positions);
  RopeInfo info{.use = RopeUse::rope,
                .inv_freq = {frequencies.inverse.begin(), frequencies.inverse.end()}};
  std::sort(info.inv_freq.begin(), info.inv_freq.end(), std::greater<>());
  return info;
}

std::optional<std::int32_t> ModelFacts::window(int layer) const {
  const auto tokens = model_.layers[static_cast<std::size_t>(layer)].window;
  return tokens > 0 ? std::optional(static_cast<std::int32_t>(tokens)) : std::nullopt;
}

void ModelFacts::check_counts(const HeadCounts& captured) const {
  const auto own = counts();
  if (captured.query_heads != own.query_heads || captured.key_heads != own.key_heads)
    bad_input(
        "--model {}: has {} query and {} key heads per layer, but the capture's {} says {} and {}; "
        "name the model that was captured",
        name_, own.query_heads, own.key_heads, layout::kStateFile, captured.query_heads,
        captured.key_heads);
}

void ModelFacts::check_head(const HeadId& id, int head_dim, const std::string& file) const {
  if (id.layer >= model_.n_layers)
    bad_input("{}: --model {} has {} layers only; name the model that was captured", file, name_,
              model_.n_layers);
  if (head_dim != model_.d_head)
    bad_input(
        "{}: vectors have {} numbers, but heads of --model {} have {}; name the model that was "
        "captured",
        file, head_dim, name_, model_.d_head);
}

}  // namespace qkscope
