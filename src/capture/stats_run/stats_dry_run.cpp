#include <algorithm>

#include "capture/run/capture_plan.h"
#include "capture/run/example_source.h"
#include "capture/stats_format/stats_file.h"
#include "capture/stats_run/retrieval.h"
#include "capture/stats_run/stats_plan.h"
#include "engine/device/memory_plan.h"

namespace qkscope {
namespace {

double real(std::int64_t number) {
  return static_cast<double>(number);
}

template <typename T>
std::int64_t bytes_of(const std::vector<T>& values) {
  return std::ssize(values) * static_cast<std::int64_t>(sizeof(T));
}

std::int64_t bytes_of(const HeadMoments& m) {
  return bytes_of(m.mean) + bytes_of(m.m2) + bytes_of(m.ct) + bytes_of(m.cu) + bytes_of(m.m3) +
         bytes_of(m.m4) + bytes_of(m.min) + bytes_of(m.max) + bytes_of(m.pair_abs) +
         bytes_of(m.norm_mean) + bytes_of(m.norm_max);
}

std::int64_t bytes_of(const LayerMoments& m) {
  return bytes_of(m.first) + bytes_of(m.body) + bytes_of(m.buckets.mean) + bytes_of(m.buckets.m2) +
         bytes_of(m.buckets.cov);
}

std::int64_t state_bytes(const Statistics& statistics) {
  const auto& a = statistics.attention;
  auto bytes = bytes_of(a.sum) + bytes_of(a.square) + bytes_of(a.document_square) +
               bytes_of(a.document_cross) + bytes_of(a.document_sum) +
               bytes_of(a.document_sum_square) + bytes_of(a.key_mass) + bytes_of(a.key_observed);
  for (const auto& [key, layers] : statistics.moments)
    for (const auto& moments : layers) bytes += bytes_of(moments);
  return bytes;
}

// Adds the floating-point operations of one document, by group.
void add_work(const StatsRunPlan& plan, std::int64_t length, StatsDryRun& dry) {
  const auto& model = plan.run.model;
  const auto& s = plan.config.stats;
  const auto d = real(model.d_head);
  dry.forward_flop += forward_flop(model, length);
  for (const auto window : plan.statistics.windows) {
    const auto pairs = attended_pairs(length, window) * real(model.n_heads);
    const auto near =
        std::min(real(length), real(s.stream_first + std::max(s.window, s.stream_last)));
    if (s.near_keys) dry.near_flop += 2 * d * real(length) * near * real(model.n_heads);
    if (s.all_keys) dry.all_flop += 2 * d * pairs * real(1 + std::ssize(s.kl));
  }
  for (const auto& [key, layers] : plan.statistics.moments)
    for (const auto& moments : layers)
      dry.moments_flop += d * (d + 1) * real(moments.body.heads) * real(length);
}

}  // namespace

StatsDryRun dry_run(const StatsRunPlan& plan, const Shard& shard) {
  StatsDryRun dry;
  ExampleSource source(plan.run, shard);
  if (source.has_foreign_ids()) source.check_ids();
  Example example;
  while (source.next(example)) {
    ++dry.examples;
    dry.truncated += example.record.truncated;
    dry.tokens += example.record.tokens;
    dry.longest = std::max<std::int64_t>(dry.longest, example.record.tokens);
    add_work(plan, example.record.tokens, dry);
  }
  dry.trials = count_trials(plan);
  dry.state_bytes = state_bytes(plan.statistics);
  const auto& settings = plan.config.stats;
  dry.device_bytes =
      statistics_bytes(plan.run.model, std::max(dry.longest, plan.run.memory.batch_tokens),
                       {.buckets = settings.buckets,
                        .moments = settings.moments,
                        .attention = plan.adds_attention(),
                        .all_keys = settings.all_keys},
                       plan.run.backend);
  return dry;
}

Json to_json(const StatsRunPlan& plan, const StatsDryRun& dry) {
  return {{"model", plan.config.run.model.name},
          {"data_root", plan.config.run.output.data_root},
          {"stats", settings_json(plan.config.stats)},
          {"examples", dry.examples},
          {"truncated", dry.truncated},
          {"tokens", dry.tokens},
          {"longest", dry.longest},
          {"trials", dry.trials},
          {"state_bytes", dry.state_bytes},
          {"device_bytes", dry.device_bytes},
          {"forward_flop", dry.forward_flop},
          {"moments_flop", dry.moments_flop},
          {"near_flop", dry.near_flop},
          {"all_flop", dry.all_flop},
          {"config_hash", plan.run.manifest.config_hash}};
}

}  // namespace qkscope
