#include "cli/dry_run.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/json.h"
#include "cli/logging.h"
#include "cli/numbers.h"
#include "qkscope/error.h"
#include "qkscope/experimental/bench.h"
#include "qkscope/experimental/store.h"
#include "qkscope/experimental/text.h"
#include "qkscope/forward.h"
#include "qkscope/hub.h"

namespace qkscope::cli {
namespace {

// The analyses warn about heads with fewer rows (queries plus keys) per dimension than this.
constexpr double kRowsPerDimension = 10;

// Rounds up to two significant digits: 6.71 becomes 6.8.
double round_up(double value) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 1);
  return std::ceil(value / unit - 1e-9) * unit;
}

// Size of the timed batch: small enough to take seconds on a CPU, large enough to saturate a GPU.
BenchBatch measured_batch(const PlannedWork& work) {
  constexpr double kCpuFlop = 2.5e11;
  constexpr std::int64_t kCpuTokens = 512;
  constexpr std::int64_t kGpuTokens = 8192;
  const auto parameters =
      static_cast<double>(std::max<std::int64_t>(1, parameter_count(work.model)));
  const auto most =
      work.device.kind == Device::Kind::cpu
          ? std::clamp<std::int64_t>(static_cast<std::int64_t>(kCpuFlop / (2 * parameters)), 16,
                                     kCpuTokens)
          : kGpuTokens;
  const auto context = std::max<std::int64_t>(1, work.model.max_positions);
  const auto tokens = std::clamp<std::int64_t>(work.longest, 1, std::min(most, context));
  return {.documents = work.device.kind == Device::Kind::cpu ? 1 : most / tokens, .tokens = tokens};
}

// Returns advice for too few rows: a larger base_rate, or more texts.
std::string base_rate_advice(const SamplerOptions& sampler, double rows, double needed) {
  if (sampler.type == SamplerType::all) return "take more or longer texts";
  const double rate = round_up(sampler.base_rate * needed / std::max(rows, 1.0));
  if (rate > static_cast<double>(sampler.min_bucket_size))
    return fmt::format(
        "no capture.sampler.base_rate gives so many from these texts; take more or longer texts");
  return fmt::format("capture.sampler.base_rate {:g} instead of {:g} gives about as many", rate,
                     sampler.base_rate);
}

}  // namespace

TimeEstimate estimate_time(const PlannedWork& work, const ComputeOptions& compute) {
  TimeEstimate time;
  const auto& model = work.config.model;
  const FetchOptions fetch{.weights = false, .quiet = true};
  try {
    const auto folder =
        fetch_checkpoint(fetch_input(model.name, fetch), model.revision.value_or(""), fetch);
    if (!inspect_checkpoint(folder).has_weights) {
      time.unknown = "the weights are not on this machine";
      return time;
    }
    const auto batch = measured_batch(work);
    const ModelOptions options{.device = device_name(work.device),
                               .dtype = std::string(dtype_name(work.dtype)),
                               .config_overrides = model.config_overrides,
                               .device_memory = compute.device_memory,
                               .quiet = true};
    const auto report =
        measure_speed(folder, options, {.batches = {batch}, .repeats = 1, .ceiling_seconds = 0.01});
    const auto& result = report.results.front();
    time.flop_per_second = result.flop / result.seconds;
    time.tokens = result.rows;
    time.seconds = work.flop / time.flop_per_second / static_cast<double>(work.workers);
  } catch (const Error& error) {
    time.unknown = error.what();
  }
  return time;
}

std::vector<std::string> length_warnings(const PlannedWork& work) {
  const auto length = work.config.tokenizer.max_length;
  const auto context = work.model.max_positions;
  if (context <= 0 || length <= context) return {};
  return {fmt::format(
      "tokenizer.max_length {} is above the context of the model, {} positions; the longest text "
      "has {} tokens. Vectors behind the context are of positions that the model was not trained "
      "on: set tokenizer.max_length to {}",
      number(length), number(context), number(work.longest), context)};
}

std::vector<std::string> row_warnings(const PlannedWork& work, double rows, double tokens) {
  std::vector<std::string> warnings;
  const auto& capture = work.config.capture;
  const auto& sampler = capture.sampler;
  if (sampler.type != SamplerType::all &&
      sampler.base_rate > static_cast<double>(sampler.min_bucket_size))
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
  const double needed = kRowsPerDimension * static_cast<double>(work.model.d_head);
  if (both >= needed) return warnings;
  const auto advice =
      2 * tokens < needed
          ? std::string("even every position would be too few: take more or longer texts")
          : base_rate_advice(sampler, both, needed);
  warnings.push_back(fmt::format(
      "rows are few for the analyses: about {:.0f} queries and keys per head in {} dimensions, and "
      "{:.0f} are needed ({:g} per dimension). {}",
      both, work.model.d_head, needed, kRowsPerDimension, advice));
  return warnings;
}

void print_advice(const TimeEstimate& time, const std::vector<std::string>& warnings) {
  if (time.seconds)
    fmt::print("time       about {}, from a pass of {} tokens here ({:.3g} GFLOP/s)\n",
               *time.seconds < 1 ? "a second" : format_duration(*time.seconds), number(time.tokens),
               time.flop_per_second / 1e9);
  else
    fmt::print("time       unknown: {}\n", printable(time.unknown));
  for (const auto& warning : warnings) warn("{}", warning);
}

std::string with_advice(const std::string& plan_json, const TimeEstimate& time,
                        const std::vector<std::string>& warnings) {
  Json plan = Json::parse(plan_json);
  plan["warnings"] = warnings;
  plan["seconds"] = time.seconds ? Json(*time.seconds) : Json(nullptr);
  return dump_json(plan);
}

}  // namespace qkscope::cli
