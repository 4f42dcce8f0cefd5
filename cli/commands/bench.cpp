// qkscope bench: measures the speed of a model on this machine.
#include "qkscope/experimental/bench.h"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/numbers.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

struct BenchArguments {
  CommonOptions common;
  ModelArguments model;
  std::vector<std::string> batches;
  BenchOptions bench;
  bool json = false;
};

BenchBatch parse_batch(const std::string& text) {
  const auto parts = split(text, 'x');
  if (parts.size() > 2)
    reject("--batch: found '{}', expected TOKENS or DOCUMENTSxTOKENS (8x4096)", text);
  BenchBatch batch;
  batch.tokens = parse_integer(parts.back(), "--batch");
  if (parts.size() == 2) batch.documents = parse_integer(parts.front(), "--batch");
  if (batch.documents < 1 || batch.tokens < 1)
    reject("--batch: found '{}', expected at least one document of one token", text);
  return batch;
}

std::string batch_text(const BenchResult& result) {
  return fmt::format("{} x {}", result.batch.documents, format_number(result.batch.tokens));
}

double flop_per_second(const BenchResult& result) {
  return result.flop / result.seconds;
}

// Lists the attention kernels, most used first: "FlashInfer, our own in 1 of 36 layers".
std::string list_kernels(const BenchResult& result) {
  std::int64_t layers = 0;
  for (const auto& kernel : result.attention) layers += kernel.layers;
  std::vector<std::string> names;
  for (const auto& kernel : result.attention)
    names.push_back(names.empty()
                        ? kernel.name
                        : fmt::format("{} in {} of {} layers", kernel.name, kernel.layers, layers));
  return fmt::format("{}", fmt::join(names, ", "));
}

// Formats a rate: "1.2 TFLOP/s", "90.0 GFLOP/s".
std::string rate_text(double value) {
  return value >= 1e12 ? fmt::format("{:.1f} TFLOP/s", value / 1e12)
                       : fmt::format("{:.1f} GFLOP/s", value / 1e9);
}

void print_parts(const BenchResult& result, double ceiling) {
  double total = 0.0;
  for (const auto& part : result.parts) total += part.seconds;
  fmt::print("\n{}, part by part\n", batch_text(result));
  fmt::print("{:<14} {:>10} {:>7} {:>15} {:>11}\n", "part", "ms", "share", "rate", "of ceiling");
  for (const auto& part : result.parts) {
    const bool computes = part.flop > 0.0 && part.seconds > 0.0;
    fmt::print("{:<14} {:>10.2f} {:>6.1f}% {:>15} {:>11}\n", part.name, 1e3 * part.seconds,
               100.0 * part.seconds / total, computes ? rate_text(part.flop / part.seconds) : "",
               computes ? fmt::format("{:.2f}", part.flop / part.seconds / ceiling) : "");
  }
}

void print(const std::string& name, const BenchReport& report) {
  fmt::print("model      {}: {} parameters\n", printable(name), format_number(report.parameters));
  fmt::print("device     {} ({}), {}\n", report.device, report.hardware, dtype_name(report.dtype));
  fmt::print("ceiling    {} in matrix products\n", rate_text(report.ceiling));
  fmt::print("weights    {}\n\n", format_size(report.weight_bytes));
  fmt::print("{:>12} {:>11} {:>15} {:>11} {:>11}  {}\n", "batch", "tokens/s", "rate", "of ceiling",
             "memory", "attention");
  for (const auto& result : report.results)
    fmt::print("{:>12} {:>11.1f} {:>15} {:>11.2f} {:>11}  {}\n", batch_text(result),
               static_cast<double>(result.rows) / result.seconds,
               rate_text(flop_per_second(result)), flop_per_second(result) / report.ceiling,
               format_size(result.activation_bytes), list_kernels(result));
  for (const auto& result : report.results) print_parts(result, report.ceiling);
}

Json to_json(const BenchResult& result, double ceiling) {
  Json parts = Json::array();
  for (const auto& part : result.parts)
    parts.push_back({{"name", part.name}, {"seconds", part.seconds}, {"flop", part.flop}});
  Json attention = Json::array();
  for (const auto& kernel : result.attention)
    attention.push_back({{"kernel", kernel.name}, {"layers", kernel.layers}});
  return {{"documents", result.batch.documents},
          {"tokens", result.batch.tokens},
          {"seconds", result.seconds},
          {"best_seconds", result.best_seconds},
          {"tokens_per_s", static_cast<double>(result.rows) / result.seconds},
          {"flop", result.flop},
          {"flop_per_s", flop_per_second(result)},
          {"share_of_ceiling", flop_per_second(result) / ceiling},
          {"activation_bytes", result.activation_bytes},
          {"attention", attention},
          {"parts", parts}};
}

Json to_json(const std::string& name, const BenchReport& report) {
  Json results = Json::array();
  for (const auto& result : report.results) results.push_back(to_json(result, report.ceiling));
  return {{"model", name},
          {"parameters", report.parameters},
          {"device", report.device},
          {"hardware", report.hardware},
          {"dtype", dtype_name(report.dtype)},
          {"ceiling_flop_per_s", report.ceiling},
          {"weight_bytes", report.weight_bytes},
          {"batches", results}};
}

void run(BenchArguments& options) {
  for (const auto& text : options.batches) options.bench.batches.push_back(parse_batch(text));
  const auto folder = options.model.fetch(options.common.quiet);
  const auto report = measure_speed(folder, options.model.options(0), options.bench);
  if (options.json)
    fmt::print("{}\n", dump_json(to_json(options.model.name, report), 2));
  else
    print(options.model.name, report);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto [command, options] = add_command<BenchArguments>(
      app, "bench", "Measure the speed of a model here: tokens/s, FLOP/s, memory, time per part",
      run);
  options->model.add_to(*command);
  start_section(*command, "Measurement");
  command
      ->add_option("--batch", options->batches,
                   "TOKENS or DOCUMENTSxTOKENS, several separated by commas (default: 512,2048 on "
                   "the CPU, 8x4096,32768 on a GPU, at most the model's context)")
      ->delimiter(',');
  command
      ->add_option("--repeats", options->bench.repeats,
                   "Number of timed passes; the median is reported")
      ->check(integer_between(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--ceiling-seconds", options->bench.ceiling_seconds,
                   "Seconds of matrix products that measure the peak FLOP/s of the device")
      ->check(number_between(0.01, 3600.0))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object");
}

}  // namespace qkscope::cli
