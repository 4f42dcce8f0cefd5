#include "qkscope/experimental/run_advice.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/core/numbers.h"
#include "base/core/text.h"
#include "base/io/json.h"
#include "capture/stats_run/stats_plan.h"
#include "qkscope/error.h"
#include "qkscope/experimental/bench.h"
#include "qkscope/experimental/store.h"
#include "qkscope/forward.h"
#include "qkscope/hub.h"

namespace qkscope {
namespace {

// Properties of a planned run on which its warnings and time estimate depend.
struct RunWorkload {
  const RunPlan& plan;
  std::int64_t longest;  // tokens of the longest text
  double flop;           // floating-point operations of the whole run
};

// Analyses warn about heads with fewer rows (queries plus keys) per dimension than this.
constexpr double kRowsPerDimension = 10;

// Rounds up to two significant digits: 6.71 becomes 6.8.
double round_up_two_digits(double value) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 1);
  return std::ceil(value / unit - 1e-9) * unit;
}

// Chooses the batch to time: a few seconds of work for a CPU, or enough to saturate a GPU.
BenchBatch choose_timed_batch(const RunWorkload& work) {
  constexpr double kCpuFlop = 2.5e11;
  constexpr std::int64_t kCpuTokens = 512;
  constexpr std::int64_t kGpuTokens = 8192;
  const auto parameters = to_double(std::max<std::int64_t>(1, parameter_count(work.plan.model)));
  const bool cpu = work.plan.backend.device.kind == Device::Kind::cpu;
  const auto cpu_tokens = static_cast<std::int64_t>(kCpuFlop / (2 * parameters));
  const auto most = cpu ? std::clamp<std::int64_t>(cpu_tokens, 16, kCpuTokens) : kGpuTokens;
  const auto context = std::max<std::int64_t>(1, work.plan.model.max_positions);
  const auto tokens = std::clamp<std::int64_t>(work.longest, 1, std::min(most, context));
  return {.documents = cpu ? 1 : most / tokens, .tokens = tokens};
}

// Returns advice on how to get `needed` rows: a larger base_rate, or more texts.
std::string suggest_more_rows(const SamplerOptions& sampler, double rows, double needed) {
  if (sampler.type == SamplerType::all) return "take more or longer texts";
  const double rate = round_up_two_digits(sampler.base_rate * needed / std::max(rows, 1.0));
  if (rate > to_double(sampler.min_bucket_size))
    return "no capture.sampler.base_rate gives so many from these texts; take more or longer texts";
  return fmt::format("capture.sampler.base_rate {:g} instead of {:g} gives about as many", rate,
                     sampler.base_rate);
}

void estimate_run_time(const RunWorkload& work, const ComputeOptions& compute, RunAdvice& advice) {
  const auto& model = work.plan.config.model;
  if (work.plan.config.engine != kNativeEngine) {
    advice.unknown = "only passes of the native engine are timed";
    return;
  }
  const FetchOptions fetch{.weights = false, .quiet = true};
  try {
    const auto folder =
        fetch_checkpoint(fetch_input(model.name, fetch), model.revision.value_or(""), fetch);
    if (!inspect_checkpoint(folder).has_weights) {
      advice.unknown = "the weights are not on this machine";
      return;
    }
    const auto batch = choose_timed_batch(work);
    const ModelOptions options{.device = device_name(work.plan.backend.device),
                               .dtype = std::string(dtype_name(work.plan.backend.dtype)),
                               .config_overrides = model.config_overrides,
                               .device_memory = compute.device_memory,
                               .quiet = true};
    const auto report =
        measure_speed(folder, options, {.batches = {batch}, .repeats = 1, .ceiling_seconds = 0.01});
    const auto& result = report.results.front();
    advice.flop_per_second = result.flop / result.seconds;
    advice.tokens = result.rows;
    advice.seconds = work.flop / advice.flop_per_second / to_double(std::ssize(work.plan.workers));
  } catch (const Error& error) {
    advice.unknown = error.what();
  }
}

// Returns a warning if texts may be longer than the context of the model.
std::vector<std::string> context_length_warnings(const RunWorkload& work) {
  const auto length = work.plan.config.tokenizer.max_length;
  const auto context = work.plan.model.max_positions;
  if (context <= 0 || length <= context) return {};
  return {fmt::format(
      "tokenizer.max_length {} is above the context of the model, {} positions; the longest text "
      "has {} tokens. Vectors behind the context are of positions that the model was not trained "
      "on: set tokenizer.max_length to {}",
      format_count(length), format_count(context), format_count(work.longest), context)};
}

// Returns warnings about the position sampler and about too few rows for the analyses. `rows`: mean
// number of rows per head file; `tokens`: number of tokens; both over all shards.
std::vector<std::string> row_count_warnings(const RunWorkload& work, double rows, double tokens) {
  std::vector<std::string> warnings;
  const auto& capture = work.plan.config.capture;
  const auto& sampler = capture.sampler;
  if (sampler.type != SamplerType::all && sampler.base_rate > to_double(sampler.min_bucket_size))
    warnings.push_back(fmt::format(
        "capture.sampler.base_rate {:g} is above capture.min_bucket_size {}: the probability of a "
        "position is at most 1, so {} kept and a larger base_rate changes nothing there; lower "
        "base_rate, or raise min_bucket_size",
        sampler.base_rate, sampler.min_bucket_size,
        sampler.type == SamplerType::uniform ? "every position is"
                                             : "all positions of the first buckets are"));
  if (!capture.queries || !capture.keys) {
    warnings.push_back(fmt::format("only {} are captured; the analyses need queries and keys",
                                   capture.queries ? "queries" : "keys"));
    return warnings;
  }
  const double both = 2 * rows;
  const double needed = kRowsPerDimension * to_double(work.plan.model.d_head);
  if (both >= needed) return warnings;
  const auto advice =
      2 * tokens < needed
          ? std::string("even every position would be too few: take more or longer texts")
          : suggest_more_rows(sampler, both, needed);
  warnings.push_back(fmt::format(
      "rows are few for the analyses: about {:.0f} queries and keys per head in {} dimensions, and "
      "{:.0f} are needed ({:g} per dimension). {}",
      both, work.plan.model.d_head, needed, kRowsPerDimension, advice));
  return warnings;
}

}  // namespace

RunAdvice make_run_advice(const CapturePlan& plan, const DryRun& dry, const Shard& shard,
                          const ComputeOptions& compute) {
  const RunWorkload work{plan.run_plan(), dry.longest, dry.flop};
  const auto shards = to_double(shard.count);
  RunAdvice advice;
  advice.warnings = context_length_warnings(work);
  for (auto& warning : row_count_warnings(work, shards * to_double(dry.rows) / to_double(dry.files),
                                          shards * to_double(dry.tokens)))
    advice.warnings.push_back(std::move(warning));
  estimate_run_time(work, compute, advice);
  return advice;
}

RunAdvice make_run_advice(const StatsPlan& plan, const StatsDryRun& dry,
                          const ComputeOptions& compute) {
  const double flop = dry.forward_flop + dry.moments_flop + dry.near_flop + dry.all_flop;
  const RunWorkload work{plan.run_plan().run, dry.longest, flop};
  RunAdvice advice;
  advice.warnings = context_length_warnings(work);
  estimate_run_time(work, compute, advice);
  return advice;
}

std::string add_advice_to_plan_json(const std::string& plan_json, const RunAdvice& advice) {
  Json plan = Json::parse(plan_json);
  plan["warnings"] = advice.warnings;
  plan["seconds"] = advice.seconds ? Json(*advice.seconds) : Json(nullptr);
  return plan.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace qkscope
