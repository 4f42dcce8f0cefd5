// Tokens per second of the whole forward pass, logits included, on a checkpoint. Prints one JSON
// line per length, as bench/forward_peer.py does for PyTorch.
#include <chrono>
#include <cstdlib>
#include <random>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "core/error.h"
#include "core/thread_pool.h"
#include "forward/forward.h"

namespace qkscope {
namespace {

struct Options {
  std::string model;
  std::vector<std::int64_t> tokens = {512, 2048};
  int threads = 0;
  int repeats = 5;
};

class LogitsOnly : public Observer {
 public:
  bool wants(HookPoint point) const override { return point.stage == Stage::logits; }
  void see(HookPoint, ConstTensorView) override {}
};

Batch random_batch(std::int64_t tokens, std::int64_t vocabulary) {
  std::mt19937 generator(0);
  std::uniform_int_distribution<std::int32_t> id(0, static_cast<std::int32_t>(vocabulary - 1));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
  for (auto& value : ids) value = id(generator);
  Batch batch;
  batch.add(ids);
  return batch;
}

double seconds(const Model& model, const Batch& batch) {
  const auto start = std::chrono::steady_clock::now();
  LogitsOnly observer;
  forward(model, batch, observer);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void run(const Options& options) {
  set_thread_count(options.threads);
  const auto model = load_model(options.model);
  for (const auto tokens : options.tokens) {
    const auto batch = random_batch(tokens, model.config.vocab_size);
    double best = seconds(model, batch);  // the first run warms up
    for (int i = 0; i < options.repeats; ++i) best = std::min(best, seconds(model, batch));
    fmt::print(
        "{{\"engine\": \"qkscope\", \"tokens\": {}, \"threads\": {}, \"seconds\": {:.4f}, "
        "\"tokens_per_s\": {:.1f}}}\n",
        tokens, thread_count(), best, static_cast<double>(tokens) / best);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace qkscope

int main(int argc, char** argv) {
  qkscope::Options options;
  CLI::App app{"Times the forward pass on the CPU"};
  app.add_option("--model", options.model, "Checkpoint folder")->required();
  app.add_option("--tokens", options.tokens, "Lengths")->delimiter(',');
  app.add_option("--threads", options.threads, "Threads (default: one per core)");
  app.add_option("--repeats", options.repeats, "Timed runs; the best counts");
  CLI11_PARSE(app, argc, argv);
  try {
    qkscope::run(options);
  } catch (const qkscope::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return error.exit_code();
  }
  return EXIT_SUCCESS;
}
