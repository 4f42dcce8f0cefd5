// Measures rows and tokens per second of a whole capture, and the fraction of time outside the
// forward pass. Generates its own dataset; prints one JSON line.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "base/io/json.h"
#include "qkscope/capture.h"

namespace qkscope {
namespace {

struct Options {
  std::string model;
  std::string folder;
  std::int64_t documents = 4;
  std::int64_t tokens = 4096;
  int threads = 0;
};

// Documents are far longer than the captured tokens, as in the real dataset.
void write_dataset(const std::string& path, const Options& options) {
  std::mt19937 random(0);
  const std::vector<std::string> words = {"stone", "river", "and", "the", "cold", "light", "under"};
  std::ofstream out(path);
  for (std::int64_t i = 0; i < options.documents; ++i) {
    std::string text;
    while (static_cast<std::int64_t>(text.size()) < 32 * options.tokens)
      text += words[random() % words.size()] + " ";
    out << Json{{"id", i}, {"text", text}}.dump() << "\n";
  }
}

CaptureConfig configuration(const Options& options) {
  CaptureConfig config;
  config.dataset.path = options.folder + "/docs.jsonl";
  config.dataset.id_column = "id";
  config.model.name = options.model;
  config.model.dtype = DType::f32;
  config.tokenizer.name = options.model;
  config.tokenizer.max_length = options.tokens;
  config.capture.heads.sampling = HeadSampling{.count = 300, .seed = 0};
  config.capture.sampler = {.type = SamplerType::uniform,
                            .base_rate = 1.0,
                            .min_bucket_size = std::max<std::int64_t>(1, options.tokens / 16),
                            .max_rows = {}};
  config.output.data_root = options.folder + "/out";
  return config;
}

void run(const Options& options) {
  set_thread_count(options.threads);
  std::filesystem::create_directories(options.folder);
  write_dataset(options.folder + "/docs.jsonl", options);
  const auto plan = make_plan(configuration(options));
  const auto start = std::chrono::steady_clock::now();
  const auto result = run_capture(plan, {.shard = {}, .overwrite = true, .quiet = true});
  const auto wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Json line = {{"documents", result.examples},
                     {"tokens", result.tokens},
                     {"rows", result.rows},
                     {"threads", thread_count()},
                     {"wall_s", wall},
                     {"capture_s", result.seconds - result.load_seconds - result.assembly_seconds},
                     {"load_s", result.load_seconds},
                     {"forward_s", result.forward_seconds},
                     {"input_s", result.input_seconds},
                     {"assembly_s", result.assembly_seconds},
                     {"rows_per_s", static_cast<double>(result.rows) / wall},
                     {"tokens_per_s", static_cast<double>(result.tokens) / wall},
                     {"outside_forward", 1.0 - result.forward_seconds / wall}};
  fmt::print("{}\n", line.dump());
}

}  // namespace
}  // namespace qkscope

int main(int argc, char** argv) {
  qkscope::Options options;
  CLI::App app{"Times a capture run on the CPU"};
  app.add_option("--model", options.model, "Checkpoint folder with a tokenizer")->required();
  app.add_option("--folder", options.folder, "Folder for the dataset and the capture")->required();
  app.add_option("--documents", options.documents, "Documents to capture");
  app.add_option("--tokens", options.tokens, "Tokens kept of each");
  app.add_option("--threads", options.threads, "Threads (default: one per core)");
  CLI11_PARSE(app, argc, argv);
  try {
    qkscope::run(options);
  } catch (const qkscope::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return error.exit_code();
  }
  return EXIT_SUCCESS;
}
