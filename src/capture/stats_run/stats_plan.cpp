#include "capture/stats_run/stats_plan.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/io/folder.h"
#include "capture/format/metadata.h"
#include "capture/run/example_source.h"
#include "capture/stats_format/stats_file.h"
#include "engine/device/memory_plan.h"
#include "engine/model/model_config.h"
#include "engine/statistics/attention_sums.h"
#include "input/checkpoint/safetensors.h"

namespace qkscope {
namespace {

constexpr char kFilters[] = "q_filters";

// Returns the FP8 key scale of a layer. Tensor names may have any prefix before "layers".
ConstTensorView find_key_scale(const SafetensorsFile& file, std::int64_t layer) {
  const auto suffix = fmt::format("layers.{}.self_attn.k_scale", layer);
  for (const auto& [name, tensor] : file.header().tensors)
    if (name == suffix || name.ends_with("." + suffix)) return file.tensor(name);
  reject("{}: has no {}; expected the fp8-kv export of this model", file.path(), suffix);
}

constexpr VectorKind kKinds[] = {VectorKind::query, VectorKind::key, VectorKind::value};
constexpr VectorStage kStages[] = {VectorStage::pre, VectorStage::post};

template <typename T>
bool is_selected(const std::vector<T>& list, T value) {  // an empty list means all
  return list.empty() || std::ranges::find(list, value) != list.end();
}

void check_statistics_settings(const StatisticsSettings& settings, const ModelConfig& model) {
  require_uniform_head_shapes(model, "statistics");
  if (settings.layers)
    for (const auto layer : *settings.layers)
      if (layer < 0 || layer >= model.n_layers)
        reject("stats.layers: there is no layer {}; the model has 0 to {}", layer,
               model.n_layers - 1);
  for (const auto& [layer, head] : settings.columns) {
    if (layer < 0 || layer >= model.n_layers || head < 0 || head >= model.n_heads)
      reject("stats.columns: there is no head {} of layer {}; layers are 0 to {}, heads 0 to {}",
             head, layer, model.n_layers - 1, model.n_heads - 1);
    if (!model.layers[static_cast<std::size_t>(layer)].attends())
      reject("stats.columns: layer {} has no attention; layers with attention are {}", layer,
             format_layer_ranges_by_attention(model, true));
  }
  if (!settings.moments && !settings.near_keys && settings.retrieval.empty())
    reject("stats.groups: nothing is asked for; expected A, B or C, or stats.retrieval");
  if (std::ranges::count(settings.bucket_covariance, VectorKind::value) > 0)
    reject("stats.bucket_covariance: expected q and k, found v");
  if (settings.near_keys && model.has_sinks())
    reject(
        "stats.groups: sums over attention (B and C) take a query's weights to sum to one, and "
        "with the learned sinks of this {} model they do not; ask for A alone",
        model.family);
  for (const auto& replacement : settings.kl)
    if (replacement.scale == KeyReplacement::Scale::group && model.d_head % replacement.group != 0)
      reject("stats.kl: {}: groups of {} do not divide the head dimension {}", replacement.name,
             replacement.group, model.d_head);
}

// Moments have the same width for all kinds of vectors. Leaves out v if its width differs from q
// and k, or throws a bad-input error if the settings request v.
void exclude_mismatched_value_vectors(StatisticsSettings& settings, std::int64_t d_value,
                                      std::int64_t d_head) {
  if (d_value == d_head || !is_selected(settings.kinds, VectorKind::value)) return;
  if (!settings.kinds.empty())
    reject("stats.kinds: v has {} dimensions and q and k have {}; leave v out", d_value, d_head);
  settings.kinds = {VectorKind::query, VectorKind::key};
}

void add_layer_descriptions(Statistics& statistics, const RunPlan& run) {
  for (const auto layer : statistics.layers) {
    // The manifest's head groups (queries or keys of one layer) hold the metadata of that layer.
    const auto group = std::ranges::find_if(run.manifest.groups,
                                            [&](const HeadGroup& g) { return g.layer == layer; });
    QKSCOPE_ASSERT(group != run.manifest.groups.end());
    auto& text = statistics.ropes.emplace_back(group->rope);
    const auto* rope = run.engine ? nullptr : run.model.rope(layer);
    const auto* own = run.engine ? &run.engine->model().ropes[as_index(layer)] : nullptr;
    statistics.rotary.push_back(own != nullptr ? own->dim : rope != nullptr ? rope->dim : 0);
    if (rope != nullptr || statistics.rotary.back() > 0) {
      auto json = parse_json(text, "RoPE");
      if (own != nullptr) json["inv_freq"] = own->inv_freq;
      if (rope != nullptr) {
        const auto frequencies = rope_frequencies(*rope, statistics.max_length);
        json["inv_freq"] = frequencies.inverse;
        json["attention_scaling"] = frequencies.attention_factor;
      }
      text = json.dump();
    }
    statistics.windows.push_back(group->window.value_or(0));
  }
}

// Returns statistics with all descriptive fields set, but no sums.
Statistics make_empty_statistics(const StatsConfig& config, const RunPlan& run) {
  Statistics statistics;
  statistics.metadata = run.manifest.metadata;
  statistics.metadata.erase(metadata::kStage);
  statistics.metadata[metadata::kConfigHash] = run.manifest.config_hash;
  statistics.metadata["num_layers"] = std::to_string(run.model.n_layers);
  statistics.metadata["family"] = run.model.family;
  std::vector<double> scales;
  for (std::int64_t layer = 0; layer < run.model.n_layers; ++layer)
    scales.push_back(run.model.score_scale(layer));
  statistics.metadata[metadata::kScoreScales] = Json(scales).dump();
  statistics.metadata["dataset"] = config.run.dataset.path;
  statistics.settings = config.stats;
  statistics.max_length = config.run.tokenizer.max_length;
  statistics.heads = run.model.n_heads;
  statistics.key_heads = run.model.n_kv_heads;
  statistics.dim = run.model.d_head;
  statistics.interleaved = run.model.rope_interleaved;
  for (std::int64_t layer = 0; layer < run.model.n_layers; ++layer)
    if (run.model.layers[as_index(layer)].has_attention()) statistics.layers.push_back(layer);
  add_layer_descriptions(statistics, run);
  return statistics;
}

void add_empty_moments(StatsRunPlan& plan) {
  auto& statistics = plan.statistics;
  const auto& asked = plan.config.stats.layers;
  for (const auto layer : statistics.layers)
    if (!asked || std::find(asked->begin(), asked->end(), layer) != asked->end())
      statistics.moment_layers.push_back(layer);
  if (statistics.moment_layers.empty() && plan.run.model.has_recurrence())
    reject("stats.layers: none of the layers {} has attention; layers with attention are {}",
           fmt::join(*asked, ", "), format_layer_ranges_by_attention(plan.run.model, true));
  if (statistics.moment_layers.empty())
    reject("stats.layers: none of the layers {} runs on text", fmt::join(*asked, ", "));
  for (const auto kind : kKinds)
    for (const auto stage : kStages) {
      const auto& settings = plan.config.stats;
      const bool value = kind == VectorKind::value;
      if (!is_selected(settings.kinds, kind) || (value && stage == VectorStage::post)) continue;
      if (!is_selected(settings.stages, stage) && !(value && plan.run.engine)) continue;
      auto& layers = statistics.moments[{kind, stage}];
      for (const auto layer : statistics.moment_layers)
        layers.push_back(plan.accumulates_moments(kind, stage, layer)
                             ? make_layer_moments(plan.moment_request(kind, stage).shape)
                             : LayerMoments());
    }
}

// Replaces the sections "capture" and "output" of a configuration with the statistics settings.
Json replace_capture_section(Json configuration, const StatisticsSettings& settings) {
  configuration.erase("capture");
  configuration.erase("output");
  configuration["stats"] = statistics_settings_to_json(settings);
  return configuration;
}

StatisticsSettings settings_with_bucket_size(const StatsConfig& config) {
  StatisticsSettings settings = config.stats;
  if (settings.bucket_size == 0)
    settings.bucket_size =
        (config.run.tokenizer.max_length + settings.buckets - 1) / settings.buckets;
  return settings;
}

// Size in bytes of the elements of several vectors.
template <typename... T>
std::int64_t vector_bytes(const std::vector<T>&... values) {
  return (std::int64_t{0} + ... + (std::ssize(values) * static_cast<std::int64_t>(sizeof(T))));
}

std::int64_t statistics_memory_bytes(const Statistics& statistics) {
  const auto& a = statistics.attention;
  auto bytes = vector_bytes(a.sum, a.square, a.document_square, a.document_cross, a.document_sum,
                            a.document_sum_square, a.key_mass, a.key_observed);
  for (const auto& [key, layers] : statistics.moments)
    for (const auto& layer : layers) {
      bytes += vector_bytes(layer.buckets.mean, layer.buckets.m2, layer.buckets.cov);
      for (const auto* m : {&layer.first, &layer.body})
        bytes += vector_bytes(m->mean, m->m2, m->ct, m->cu, m->m3, m->m4, m->min, m->max,
                              m->pair_abs, m->norm_mean, m->norm_max);
    }
  return bytes;
}

// Adds to `dry` the floating-point operations for one document: forward pass and statistics.
void add_document_flop(const StatsRunPlan& plan, std::int64_t length, StatsDryRun& dry) {
  const auto& model = plan.run.model;
  const auto& s = plan.config.stats;
  const auto d = to_double(model.d_head);
  dry.forward_flop += forward_flop(model, length);
  for (const auto window : plan.statistics.windows) {
    const auto pairs = count_attended_pairs(length, window) * to_double(model.n_heads);
    const auto near =
        std::min(to_double(length), to_double(s.stream_first + std::max(s.window, s.stream_last)));
    if (s.near_keys) dry.near_flop += 2 * d * to_double(length) * near * to_double(model.n_heads);
    if (s.all_keys)  // an upper bound for a sample, which prefers queries with few keys
      dry.all_flop += s.all_keys_rows * 2 * d * pairs * to_double(1 + std::ssize(s.kl));
  }
  for (const auto& [key, layers] : plan.statistics.moments)
    for (const auto& moments : layers)
      dry.moments_flop += d * (d + 1) * to_double(moments.body.heads) * to_double(length);
}

// Returns key scales, shape (layers, key heads); a per-tensor scale is repeated for every head.
std::vector<float> read_key_scales(const std::string& path, const ModelConfig& model) {
  const SafetensorsFile file(resolve_exported_file(path, kKeyScalesFile));
  std::vector<float> scales;
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer) {
    const auto scale = find_key_scale(file, layer);
    const bool per_head = scale.size() == model.n_kv_heads;
    if (scale.dtype() != DType::f32 || (scale.size() != 1 && !per_head))
      reject("{}: the scales of layer {} are {} x {}; expected 1 or {} (key heads) of float32",
             file.path(), layer, scale.size(), dtype_name(scale.dtype()), model.n_kv_heads);
    for (std::int64_t head = 0; head < model.n_kv_heads; ++head)
      scales.push_back(scale.data<float>()[per_head ? head : 0]);
  }
  for (const float scale : scales)
    if (!(scale > 0.0f)) reject("{}: holds the scale {}; expected more than 0", file.path(), scale);
  return scales;
}

// Returns the q-filter of each key head, shape (layers, key heads, d).
std::vector<float> read_key_filters(const std::string& path, const ModelConfig& model) {
  const SafetensorsFile file(resolve_exported_file(path, kKeyFiltersFile));
  if (!file.header().tensors.contains(kFilters))
    reject("{}: has no tensor {}; expected a q-filters export", file.path(), kFilters);
  const auto filters = file.tensor(kFilters);
  const Shape expected = {model.n_layers, model.n_kv_heads, model.d_head};
  if (filters.dtype() != DType::f32 || filters.shape() != expected)
    reject("{}: {} is {} of shape {}; expected float32 of shape {} for this model", file.path(),
           kFilters, dtype_name(filters.dtype()), filters.shape().to_string(),
           expected.to_string());
  return {filters.data<float>(), filters.data<float>() + filters.size()};
}

}  // namespace

std::string resolve_exported_file(const std::string& path, const char* name) {
  return is_folder(path) ? path + "/" + name : path;
}

Json effective_stats_config(const StatsConfig& config) {
  return replace_capture_section(effective_config(config.run), settings_with_bucket_size(config));
}

bool StatsRunPlan::accumulates_moments(VectorKind kind, VectorStage stage,
                                       std::int64_t layer) const {
  const auto& s = config.stats;
  if (!s.moments || !std::ranges::binary_search(statistics.moment_layers, layer)) return false;
  if (!is_selected(s.kinds, kind)) return false;
  if (kind == VectorKind::value && run.engine) return stage == VectorStage::pre;
  if (!is_selected(s.stages, stage)) return false;
  if (stage == VectorStage::pre) return true;
  if (kind == VectorKind::value) return false;
  // Covariances per bucket exist only after RoPE, so moments before RoPE cannot replace them.
  if (!s.bucket_covariance.empty() && is_selected(s.bucket_covariance, kind)) return true;
  // Without RoPE and query scaling, vectors are the same before and after RoPE.
  const bool scaled = kind == VectorKind::query && run.model.query_scaling.has_value();
  return scaled || run.model.rope(layer) != nullptr || !is_selected(s.stages, VectorStage::pre);
}

MomentRequest StatsRunPlan::moment_request(VectorKind kind, VectorStage stage) const {
  const auto& s = config.stats;
  MomentRequest request;
  request.shape.heads = kind == VectorKind::query ? statistics.heads : statistics.key_heads;
  request.shape.dim = statistics.dim;
  if (stage == VectorStage::pre && kind != VectorKind::value && !run.model.ropes.empty()) {
    request.shape.pairs = run.model.ropes.front().dim / 2;
    request.first_rotated = run.model.ropes.front().begin;
  }
  request.shape.buckets = s.buckets;
  request.shape.bucket_covariance =
      stage == VectorStage::post && std::ranges::count(s.bucket_covariance, kind) > 0;
  request.first = s.first;
  request.bucket_size = s.bucket_size;
  request.interleaved = run.model.rope_interleaved;
  return request;
}

StatsRunPlan make_stats_run_plan(const StatsConfig& config, const ComputeOptions& compute,
                                 std::shared_ptr<ExternalEngine> engine) {
  StatsRunPlan plan;
  plan.config = config;
  plan.run = make_run_plan(config.run, compute, std::move(engine));
  auto& settings = plan.config.stats;
  check_statistics_settings(settings, plan.run.model);
  settings = settings_with_bucket_size(config);
  auto d_value = plan.run.model.d_value();
  if (plan.run.engine) {  // provides q and k after RoPE only and runs no retrieval trials
    const auto& model = plan.run.engine->model();
    if (!settings.retrieval.empty())
      reject("stats.retrieval: trials need the native engine; leave it out for {}", model.engine);
    if (!is_selected(settings.stages, VectorStage::post))
      reject("stats.stages: {} shows q and k after RoPE only; expected post", model.engine);
    settings.stages = {VectorStage::post};
    d_value = model.d_value;
  }
  exclude_mismatched_value_vectors(settings, d_value, plan.run.model.d_head);
  auto& manifest = plan.run.manifest;
  manifest.identity = replace_capture_section(manifest.identity, settings);
  manifest.config_hash = config_hash(effective_stats_config(plan.config));
  plan.statistics = make_empty_statistics(plan.config, plan.run);
  if (settings.moments) add_empty_moments(plan);
  if (!settings.fp8_scales.empty())
    plan.key_scales = read_key_scales(settings.fp8_scales, plan.run.model);
  if (!settings.q_filters.empty())
    plan.key_filters = read_key_filters(settings.q_filters, plan.run.model);
  if (plan.accumulates_attention())
    plan.statistics.attention = make_attention_statistics(
        settings, std::ssize(plan.statistics.layers), plan.statistics.heads);
  // Statistics do not sample rows, but the part format requires one head group.
  manifest.groups.resize(1);
  manifest.groups.front().heads.clear();
  plan.run.points.clear();
  return plan;
}

void copy_pre_to_post_rope_moments(Statistics& statistics) {
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

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StatsDryRun, examples, truncated, dropped_chunks, tokens,
                                   longest, trials, state_bytes, device_bytes, forward_flop,
                                   moments_flop, near_flop, all_flop)

StatsDryRun dry_run_stats(const StatsPlan& made, const Shard& shard) {
  return translate_exceptions([&] {
    const auto& plan = made.run_plan();
    StatsDryRun dry;
    ExampleSource source(plan.run, shard);
    if (source.has_dataset_ids()) source.check_ids_and_count_documents();
    Example example;
    while (source.next(example)) {
      ++dry.examples;
      dry.truncated += example.record.truncated;
      dry.tokens += example.record.tokens;
      dry.longest = std::max<std::int64_t>(dry.longest, example.record.tokens);
      add_document_flop(plan, example.record.tokens, dry);
    }
    dry.dropped_chunks = source.dropped_chunk_count();
    dry.trials = count_retrieval_trials(plan);
    dry.state_bytes = statistics_memory_bytes(plan.statistics);
    const auto& settings = plan.config.stats;
    if (plan.run.engine) return dry;  // an external engine has its own memory
    dry.device_bytes =
        statistics_bytes(plan.run.model, std::max(dry.longest, plan.run.memory.batch_tokens),
                         {.buckets = settings.buckets,
                          .moments = settings.moments,
                          .attention = plan.accumulates_attention(),
                          .all_keys = settings.all_keys},
                         plan.run.backend);
    return dry;
  });
}

std::string plan_json(const StatsPlan& made, const StatsDryRun& dry) {
  const auto& plan = made.run_plan();
  Json json = dry;
  json.update(Json{{"model", plan.config.run.model.name},
                   {"data_root", plan.config.run.output.data_root},
                   {"stats", statistics_settings_to_json(plan.config.stats)},
                   {"config_hash", plan.run.manifest.config_hash}});
  return translate_exceptions([&] { return json.dump(2); });
}

}  // namespace qkscope
