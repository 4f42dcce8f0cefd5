// Times score attribution against one pass of the same model and prints one JSON line: seconds of
// one pass up to the last layer, of the attribution, their ratio, the growth of the peak memory,
// and the seconds of each stage of the attribution.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "analysis/attribution/attribution_state.h"
#include "base/core/error.h"
#include "qkscope/experimental/attribution.h"
#include "qkscope/forward.h"

namespace qkscope {
namespace {

struct Options {
  std::string model;
  std::string device = "auto";
  std::string dtype = "bfloat16";
  std::int64_t tokens = 131072;
  std::int64_t queries = 16;
  std::int64_t keys = 32;
  int repeats = 3;
};

class LastQuery : public Observer {
 public:
  explicit LastQuery(std::int64_t row) : rows_{row} {}
  bool wants(HookPoint point) const override { return point.stage == Stage::logits; }
  Selection selection(HookPoint) const override { return {.rows = rows_, .heads = {}}; }
  void observe(HookPoint, ConstTensorView) override {}

 private:
  std::vector<std::int64_t> rows_;
};

double seconds_of(const std::function<void()>& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double best_seconds(int repeats, const std::function<void()>& action) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) best = std::min(best, seconds_of(action));
  return best;
}

// Seconds of the stages of an attribution.
struct Stages {
  double first_pass = 0;   // attention rows of the queries, and the choice of keys
  double second_pass = 0;  // components at the chosen positions
};

Stages measure_stages(const Model& model, const std::vector<std::int32_t>& tokens,
                      const AttributionOptions& options, int repeats) {
  Stages stages;
  std::vector<ScorePair> pairs;
  stages.first_pass = best_seconds(repeats, [&] {
    pairs = choose_pairs(model, tokens, options.heads, options.queries,
                         parse_key_chooser(options.keys, std::ssize(tokens)));
  });
  stages.second_pass =
      best_seconds(repeats, [&] { decompose_heads(model, tokens, options.heads, pairs, {}); });
  return stages;
}

// Peak resident memory of this process in GiB (VmHWM of /proc/self/status).
double peak_gibibytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) / (1 << 20);
  return 0;
}

void run(const Options& options) {
  const auto model = Model::load(options.model, {.device = options.device,
                                                 .dtype = options.dtype,
                                                 .longest_batch = options.tokens,
                                                 .quiet = true});
  std::mt19937 random(0);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(options.tokens));
  for (auto& id : tokens)
    id = static_cast<std::int32_t>(random() % static_cast<unsigned>(model.config().vocab_size));
  Batch batch;
  batch.add(tokens);
  LastQuery observer(options.tokens - 1);
  const double pass = best_seconds(options.repeats, [&] { model.run(batch, observer); });
  const double before = peak_gibibytes();
  AttributionOptions wanted;
  wanted.heads = {{model.config().n_layers - 1, 0}};
  wanted.queries.clear();
  for (std::int64_t i = 1; i <= options.queries; ++i)
    wanted.queries.push_back(i * options.tokens / options.queries - 1);
  wanted.keys = fmt::format("top:{}", options.keys);
  double worst = 0;
  const double attribution = best_seconds(options.repeats, [&] {
    const auto scores = attribute_scores(model, tokens, wanted);
    for (const auto& pair : scores.pairs())
      worst = std::max(worst, std::abs(pair.residual) / pair.magnitude);
  });
  const double after = peak_gibibytes();
  const auto stages = measure_stages(model, tokens, wanted, options.repeats);
  fmt::print(
      "{{\"tokens\": {}, \"queries\": {}, \"keys\": {}, \"pass_seconds\": {:.4f}, "
      "\"attribution_seconds\": {:.4f}, \"ratio\": {:.3f}, \"peak_gib_before\": {:.3f}, "
      "\"peak_gib_after\": {:.3f}, \"worst_residual\": {:.2e}, \"first_pass_seconds\": {:.4f}, "
      "\"second_pass_seconds\": {:.4f}, \"scores_seconds\": {:.4f}}}\n",
      options.tokens, options.queries, options.keys, pass, attribution, attribution / pass, before,
      after, worst, stages.first_pass, stages.second_pass,
      attribution - stages.first_pass - stages.second_pass);
}

}  // namespace
}  // namespace qkscope

int main(int argc, char** argv) {
  qkscope::Options options;
  CLI::App app("Times score attribution against one pass");
  app.add_option("--model", options.model, "Checkpoint folder")->required();
  app.add_option("--device", options.device);
  app.add_option("--dtype", options.dtype);
  app.add_option("--tokens", options.tokens);
  app.add_option("--queries", options.queries);
  app.add_option("--keys", options.keys);
  app.add_option("--repeats", options.repeats);
  CLI11_PARSE(app, argc, argv);
  try {
    qkscope::run(options);
  } catch (const qkscope::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
