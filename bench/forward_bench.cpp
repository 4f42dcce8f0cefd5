// Times the forward pass on a checkpoint and prints one JSON line per length or batch.
// --tokens: the whole network, logits included, on the CPU, like bench/forward_peer.py in PyTorch.
// --batch: the pruned pass of a capture, on the CPU or a GPU, for bench/cuda_table.py; with
// --statistics the same pass without statistics over every token and with each group of statistics.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/core/convert.h"
#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "base/io/json.h"
#include "engine/device/backend.h"
#include "engine/device/memory_plan.h"
#include "engine/forward/forward.h"
#include "sampled_heads.h"
#include "summed_layers.h"

namespace qkscope {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string model;
  std::string device = "cpu";
  std::string dtype = "bfloat16";
  std::vector<std::int64_t> tokens;
  std::vector<std::string> batches;  // DOCUMENTSxLENGTH
  std::string capture = "on";
  bool statistics = false;
  std::int64_t device_memory = 0;  // bytes; 0: all free memory
  int threads = 0;
  int repeats = 5;
};

class LogitsOnly : public Observer {
 public:
  bool wants(HookPoint point) const override { return point.stage == Stage::logits; }
  void observe(HookPoint, ConstTensorView) override {}
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct BatchSize {
  std::int64_t documents = 1;
  std::int64_t length = 0;
};

BatchSize parse_size(const std::string& text) {
  long long documents = 0;
  long long length = 0;
  char end = 0;
  if (std::sscanf(text.c_str(), "%lldx%lld%c", &documents, &length, &end) != 2 || documents < 1 ||
      length < 1)
    reject("--batch: found '{}', expected DOCUMENTSxTOKENS (8x4096)", text);
  return {documents, length};
}

Batch random_batch(BatchSize size, std::int64_t vocabulary) {
  std::mt19937 generator(0);
  std::uniform_int_distribution<std::int32_t> id(0, static_cast<std::int32_t>(vocabulary - 1));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(size.length));
  Batch batch;
  for (std::int64_t document = 0; document < size.documents; ++document) {
    for (auto& value : ids) value = id(generator);
    batch.add(ids);
  }
  return batch;
}

// Token ids drawn by Zipf's law, as in natural text.
Batch text_like_batch(BatchSize size, std::int64_t vocabulary) {
  std::mt19937 generator(0);
  std::uniform_real_distribution<double> share(0.0, 1.0);
  const double logarithm = std::log(static_cast<double>(vocabulary));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(size.length));
  Batch batch;
  for (std::int64_t document = 0; document < size.documents; ++document) {
    for (auto& value : ids)
      value = static_cast<std::int32_t>(std::exp(share(generator) * logarithm)) - 1;
    batch.add(ids);
  }
  return batch;
}

double timed_pass(Backend& backend, const Batch& batch, Observer& observer) {
  const auto start = Clock::now();
  forward(backend, batch, observer);
  return seconds_since(start);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2.0;
}

void print(const Json& line) {
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

// The fastest run counts, as in bench/forward_peer.py.
void time_lengths(Backend& backend, const Options& options) {
  for (const auto tokens : options.tokens) {
    const auto batch = random_batch({.length = tokens}, backend.config().vocab_size);
    LogitsOnly observer;
    double best = timed_pass(backend, batch, observer);  // warm-up
    for (int i = 0; i < options.repeats; ++i)
      best = std::min(best, timed_pass(backend, batch, observer));
    print({{"engine", "qkscope"},
           {"tokens", tokens},
           {"threads", thread_count()},
           {"seconds", best},
           {"tokens_per_s", static_cast<double>(tokens) / best}});
  }
}

// Times of passes with sampling on or off.
struct Series {
  std::string capture;
  SampledHeads observer;
  std::vector<double> runs = {};
};

std::vector<Series> make_series(const ModelConfig& model, const Batch& batch,
                                const std::string& capture) {
  std::vector<Series> series;
  if (capture != "off") series.push_back({"on", SampledHeads::as_captured(model, batch)});
  if (capture != "on") series.push_back({"off", SampledHeads::almost_none(model, batch)});
  return series;
}

class BatchTimes {
 public:
  BatchTimes(const Options& options, Clock::time_point start)
      : options_(options),
        device_(choose_device(options.device)),
        free_(free_memory_bytes(device_)) {
    const auto dtype = find_compute_dtype(options.dtype);
    if (!dtype) reject("--dtype: found '{}', expected float32, float16 or bfloat16", options.dtype);
    model_ = std::make_unique<LoadedCheckpoint>(load_unprocessed_checkpoint(options.model));
    weight_bytes_ = device_weight_bytes(model_->config, *dtype);
    backend_ = make_backend(*model_, {.device = device_,
                                      .dtype = *dtype,
                                      .device_memory = options.device_memory,
                                      .longest_batch = longest(options.batches)});
    start_seconds_ = seconds_since(start);
  }

  // Alternates sampling on and off, so that both run on an equally warm GPU.
  void time(const std::string& text) {
    const auto batch = random_batch(parse_size(text), model_->config.vocab_size);
    auto series = make_series(model_->config, batch, options_.capture);
    const auto first = timed_pass(*backend_, batch, series.front().observer);  // warm-up
    for (int i = 0; i < options_.repeats; ++i)
      for (auto& one : series) one.runs.push_back(timed_pass(*backend_, batch, one.observer));
    for (const auto& one : series) report(text, batch, one, first);
  }

  // Alternates passes without statistics and with each set of groups.
  void time_statistics(const std::string& text) {
    const auto batch = text_like_batch(parse_size(text), model_->config.vocab_size);
    std::vector<SummedLayers> series;
    for (const auto* groups : {"", "A", "AB", "ABC", "ABC/16"})
      series.emplace_back(model_->config, batch, groups);
    std::vector<std::vector<double>> runs(series.size());
    std::vector<std::int64_t> memory;
    std::vector<ResidualRows> residuals;
    for (auto& one : series) {  // warm-up; also records memory and residuals
      residuals.emplace_back(model_->config, batch);
      forward(*backend_, batch, residuals.back(), one);
      memory.push_back(free_ - free_memory_bytes(device_) - weight_bytes_);
    }
    NullObserver nobody;
    for (int i = 0; i < options_.repeats; ++i)
      for (std::size_t s = 0; s < series.size(); ++s) {
        const auto start = Clock::now();
        forward(*backend_, batch, nobody, series[s]);
        runs[s].push_back(seconds_since(start));
      }
    for (std::size_t s = 0; s < series.size(); ++s)
      print({{"batch", text},
             {"statistics", series[s].groups()},
             {"seconds", median(runs[s])},
             {"more_percent", 100 * (median(runs[s]) / median(runs[0]) - 1)},
             {"runs", runs[s]},
             {"more_bytes", memory[s] - memory[0]},
             {"residuals_equal", residuals[s] == residuals[0]}});
  }

 private:
  static std::int64_t longest(const std::vector<std::string>& batches) {  // in rows
    std::int64_t rows = 0;
    for (const auto& text : batches) {
      const auto size = parse_size(text);
      rows = std::max(rows, size.documents * size.length);
    }
    return rows;
  }

  void report(const std::string& text, const Batch& batch, const Series& series, double first) {
    const auto seconds = median(series.runs);
    const bool on_gpu = device_.kind == Device::Kind::cuda;
    const auto used = on_gpu ? free_ - free_memory_bytes(device_)
                             : weight_bytes_ + activation_bytes(model_->config, batch.rows());
    print({{"engine", "qkscope"},
           {"device", device_name(device_)},
           {"batch", text},
           {"tokens", batch.rows()},
           {"capture", series.capture},
           {"seconds", seconds},
           {"runs", series.runs},
           {"tokens_per_s", static_cast<double>(batch.rows()) / seconds},
           {"values", series.observer.values()},
           {"device_bytes", used},
           {"peak_bytes", used - weight_bytes_},
           {"weight_bytes", weight_bytes_},
           {"start_seconds", start_seconds_},
           {"first_seconds", first}});
  }

  const Options& options_;
  Device device_;
  std::int64_t free_;  // free device memory in bytes before the model is loaded
  std::unique_ptr<LoadedCheckpoint> model_;
  std::int64_t weight_bytes_ = 0;
  std::unique_ptr<Backend> backend_;
  double start_seconds_ = 0.0;  // from program start until the backend is ready
};

void run(const Options& options, Clock::time_point start) {
  set_thread_count(options.threads);
  if (options.tokens.empty() && options.batches.empty())
    reject("nothing to time: give --tokens (512,2048) or --batch (8x4096)");
  if (!options.tokens.empty()) {
    const auto model = load_unprocessed_checkpoint(options.model);
    time_lengths(*make_backend(model), options);
  }
  if (options.batches.empty()) return;
  BatchTimes times(options, start);
  for (const auto& batch : options.batches)
    options.statistics ? times.time_statistics(batch) : times.time(batch);
}

}  // namespace
}  // namespace qkscope

int main(int argc, char** argv) {
  const auto start = qkscope::Clock::now();
  qkscope::Options options;
  CLI::App app{"Times the forward pass"};
  app.add_option("--model", options.model, "Checkpoint folder")->required();
  app.add_option("--tokens", options.tokens, "Lengths, with logits, float32 on the CPU")
      ->delimiter(',');
  app.add_option("--batch", options.batches, "DOCUMENTSxTOKENS, as a capture run needs them")
      ->delimiter(',');
  app.add_option("--device", options.device, "Of the batches: auto, cpu, cuda or cuda:N")
      ->capture_default_str();
  app.add_option("--dtype", options.dtype, "On a GPU: float32, float16 or bfloat16")
      ->capture_default_str();
  app.add_option("--capture", options.capture, "Sample q and k: on, off, or both in turns")
      ->check(CLI::IsMember({"on", "off", "both"}))
      ->capture_default_str();
  app.add_flag("--statistics", options.statistics,
               "Time the batches without and with statistics over every token instead");
  app.add_option("--device-memory", options.device_memory,
                 "What may be taken of a GPU (8GiB); weights that do not fit stream")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--threads", options.threads, "Threads (default: one per core)");
  app.add_option("--repeats", options.repeats, "Timed runs after one that warms up")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    qkscope::run(options, start);
  } catch (const qkscope::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return error.exit_code();
  }
  return EXIT_SUCCESS;
}
