#include "analysis/results/model_facts.h"

#include <algorithm>
#include <functional>

#include "base/core/error.h"
#include "base/io/folder.h"
#include "capture/format/layout.h"
#include "input/hub/fetch.h"

namespace qkscope {
namespace {

ModelConfig read_config(const std::string& name, bool quiet) {
  const auto at = path_exists(name) ? std::string::npos : name.find('@');
  const auto revision = at == std::string::npos ? "" : name.substr(at + 1);
  return read_model_config(fetch_config(name.substr(0, at), revision, {.quiet = quiet}));
}

}  // namespace

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
