#include "capture/stats_run/stats_plan.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "capture/format/metadata.h"
#include "capture/run/capture_config.h"
#include "capture/stats_format/stats_file.h"
#include "engine/statistics/attention_sums.h"

namespace qkscope {
namespace {

constexpr VectorKind kKinds[] = {VectorKind::query, VectorKind::key, VectorKind::value};
constexpr VectorStage kStages[] = {VectorStage::pre, VectorStage::post};

template <typename T>
bool chosen(const std::vector<T>& list, T value) {  // an empty list means all
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

// Whether vectors are the same before and after RoPE: no RoPE and no query scaling.
bool post_is_pre(const ModelConfig& model, VectorKind kind, std::int64_t layer) {
  const bool scaled = kind == VectorKind::query && model.query_scaling.has_value();
  return model.rope(layer) == nullptr && !scaled;
}

std::int64_t heads_of(const Statistics& statistics, VectorKind kind) {
  return kind == VectorKind::query ? statistics.heads : statistics.key_heads;
}

void check_layers(const StatisticsSettings& settings, const ModelConfig& model) {
  if (settings.layers)
    for (const auto layer : *settings.layers)
      if (layer < 0 || layer >= model.n_layers)
        bad_input("stats.layers: there is no layer {}; the model has 0 to {}", layer,
                  model.n_layers - 1);
  for (const auto& [layer, head] : settings.columns)
    if (layer < 0 || layer >= model.n_layers || head < 0 || head >= model.n_heads)
      bad_input("stats.columns: there is no head {} of layer {}; layers are 0 to {}, heads 0 to {}",
                head, layer, model.n_layers - 1, model.n_heads - 1);
}

void check_settings(const StatisticsSettings& settings, const ModelConfig& model) {
  check_layers(settings, model);
  if (!settings.moments && !settings.near_keys && settings.retrieval.empty())
    bad_input("stats.groups: nothing is asked for; expected A, B or C, or stats.retrieval");
  if (std::find(settings.bucket_covariance.begin(), settings.bucket_covariance.end(),
                VectorKind::value) != settings.bucket_covariance.end())
    bad_input("stats.bucket_covariance: expected q and k, found v");
  if (settings.near_keys && model.has_sinks())
    bad_input(
        "stats.groups: sums over attention (B and C) take a query's weights to sum to one, and "
        "with the learned sinks of this {} model they do not; ask for A alone",
        model.family);
  for (const auto& replacement : settings.kl)
    if (replacement.scale == KeyReplacement::Scale::group && model.d_head % replacement.group != 0)
      bad_input("stats.kl: {}: groups of {} do not divide the head dimension {}", replacement.name,
                replacement.group, model.d_head);
}

// All layers except cross-attention layers, which text does not use.
std::vector<std::int64_t> text_layers(const ModelConfig& model) {
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer)
    if (!model.layers[static_cast<std::size_t>(layer)].cross_attention) layers.push_back(layer);
  return layers;
}

std::vector<std::int64_t> layers_of_moments(const Statistics& statistics) {
  std::vector<std::int64_t> layers;
  const auto& asked = statistics.settings.layers;
  for (const auto layer : statistics.layers)
    if (!asked || std::find(asked->begin(), asked->end(), layer) != asked->end())
      layers.push_back(layer);
  return layers;
}

// Adds the resolved frequencies to the RoPE metadata of a capture.
std::string rope_with_frequencies(const std::string& text, const RopeConfig* rope,
                                  std::int64_t length) {
  if (rope == nullptr) return text;
  auto json = parse_json(text, "RoPE");
  const auto frequencies = rope_frequencies(*rope, length);
  json["inv_freq"] = frequencies.inverse;
  json["attention_scaling"] = frequencies.attention_factor;
  return json.dump();
}

void describe_layers(Statistics& statistics, const RunPlan& run) {
  for (const auto layer : statistics.layers) {
    const auto* rope = run.model.rope(layer);
    // The head groups of the run hold the metadata that a capture writes for each layer.
    const auto group = std::find_if(run.manifest.groups.begin(), run.manifest.groups.end(),
                                    [&](const HeadGroup& g) { return g.layer == layer; });
    QKSCOPE_ASSERT(group != run.manifest.groups.end());
    statistics.ropes.push_back(rope_with_frequencies(group->rope, rope, statistics.max_length));
    statistics.rotary.push_back(rope == nullptr ? 0 : rope->dim);
    statistics.windows.push_back(group->window.value_or(0));
  }
}

// Returns statistics with all descriptive fields, but without sums.
Statistics describe(const StatsConfig& config, const RunPlan& run) {
  Statistics statistics;
  statistics.metadata = run.manifest.metadata;
  statistics.metadata.erase(metadata::kStage);
  statistics.metadata[metadata::kConfigHash] = run.manifest.config_hash;
  statistics.metadata["num_layers"] = std::to_string(run.model.n_layers);
  statistics.metadata["family"] = run.model.family;
  statistics.metadata["dataset"] = config.run.dataset.path;
  statistics.settings = config.stats;
  statistics.max_length = config.run.tokenizer.max_length;
  statistics.heads = run.model.n_heads;
  statistics.key_heads = run.model.n_kv_heads;
  statistics.dim = run.model.d_head;
  statistics.interleaved = run.model.rope_interleaved;
  statistics.layers = text_layers(run.model);
  describe_layers(statistics, run);
  return statistics;
}

void add_moments(StatsRunPlan& plan) {
  auto& statistics = plan.statistics;
  statistics.moment_layers = layers_of_moments(statistics);
  if (statistics.moment_layers.empty())
    bad_input("stats.layers: none of the layers {} runs on text",
              fmt::join(*plan.config.stats.layers, ", "));
  for (const auto kind : kKinds)
    for (const auto stage : kStages) {
      const auto& settings = plan.config.stats;
      if (!chosen(settings.kinds, kind) || !chosen(settings.stages, stage)) continue;
      if (kind == VectorKind::value && stage == VectorStage::post) continue;
      auto& layers = statistics.moments[{kind, stage}];
      for (const auto layer : statistics.moment_layers)
        layers.push_back(plan.adds(kind, stage, layer)
                             ? empty_layer(plan.moment_request(kind, stage).shape)
                             : LayerMoments());
    }
}

// Replaces the settings of captures by the settings of statistics.
Json with_settings(Json configuration, const StatisticsSettings& settings) {
  configuration.erase("capture");
  configuration.erase("output");
  configuration["stats"] = settings_json(settings);
  return configuration;
}

StatisticsSettings with_bucket_size(const StatsConfig& config) {
  StatisticsSettings settings = config.stats;
  if (settings.bucket_size == 0)
    settings.bucket_size =
        (config.run.tokenizer.max_length + settings.buckets - 1) / settings.buckets;
  return settings;
}

}  // namespace

Json effective_stats_config(const StatsConfig& config) {
  return with_settings(effective_config(config.run), with_bucket_size(config));
}

bool StatsRunPlan::adds(VectorKind kind, VectorStage stage, std::int64_t layer) const {
  const auto& s = config.stats;
  const auto& layers = statistics.moment_layers;
  if (!s.moments || !std::binary_search(layers.begin(), layers.end(), layer)) return false;
  if (!chosen(s.kinds, kind) || !chosen(s.stages, stage)) return false;
  if (stage == VectorStage::pre) return true;
  if (kind == VectorKind::value) return false;
  // Covariances per bucket exist after RoPE only, so post moments cannot be copied from pre.
  if (!s.bucket_covariance.empty() && chosen(s.bucket_covariance, kind)) return true;
  return !(chosen(s.stages, VectorStage::pre) && post_is_pre(run.model, kind, layer));
}

MomentRequest StatsRunPlan::moment_request(VectorKind kind, VectorStage stage) const {
  const auto& s = config.stats;
  const auto covariances = s.bucket_covariance;
  MomentRequest request;
  request.shape.heads = heads_of(statistics, kind);
  request.shape.dim = statistics.dim;
  if (stage == VectorStage::pre && kind != VectorKind::value && !run.model.ropes.empty())
    request.shape.pairs = run.model.ropes.front().dim / 2;
  request.shape.buckets = s.buckets;
  request.shape.bucket_covariance =
      stage == VectorStage::post &&
      std::find(covariances.begin(), covariances.end(), kind) != covariances.end();
  request.first = s.first;
  request.bucket_size = s.bucket_size;
  request.interleaved = run.model.rope_interleaved;
  return request;
}

StatsRunPlan make_stats_run_plan(const StatsConfig& config, const ComputeOptions& compute) {
  StatsRunPlan plan;
  plan.config = config;
  plan.run = make_run_plan(config.run, compute);
  auto& settings = plan.config.stats;
  check_settings(settings, plan.run.model);
  settings = with_bucket_size(config);
  auto& manifest = plan.run.manifest;
  manifest.identity = with_settings(manifest.identity, settings);
  manifest.config_hash = config_hash(effective_stats_config(plan.config));
  plan.statistics = describe(plan.config, plan.run);
  if (settings.moments) add_moments(plan);
  if (!settings.fp8_scales.empty())
    plan.key_scales = read_key_scales(settings.fp8_scales, plan.run.model);
  if (!settings.q_filters.empty())
    plan.key_filters = read_key_filters(settings.q_filters, plan.run.model);
  if (plan.adds_attention())
    plan.statistics.attention =
        empty_attention(settings, std::ssize(plan.statistics.layers), plan.statistics.heads);
  // Statistics sample no rows, but the format of parts needs one group of heads.
  manifest.groups.resize(1);
  manifest.groups.front().heads.clear();
  plan.run.points.clear();
  return plan;
}

void copy_unrotated(Statistics& statistics) {
  for (const auto kind : {VectorKind::query, VectorKind::key}) {
    const auto pre = statistics.moments.find({kind, VectorStage::pre});
    const auto post = statistics.moments.find({kind, VectorStage::post});
    if (pre == statistics.moments.end() || post == statistics.moments.end()) continue;
    for (std::size_t i = 0; i < post->second.size(); ++i) {
      auto& moments = post->second[i];
      if (moments.body.heads > 0) continue;
      moments = pre->second[i];
      for (auto* set : {&moments.first, &moments.body}) {
        set->pairs = 0;
        set->pair_abs.clear();
      }
    }
  }
}

}  // namespace qkscope
