// How fast sampled rows go to disk: into segments, as the forward pass hands them over, and from
// there into the final Parquet files. No model runs: the vectors are made up. Prints one JSON line.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "capture/assemble.h"
#include "captures/metadata.h"
#include "captures/segment.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "io/json.h"

namespace qkscope {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string folder;
  std::int64_t documents = 200;
  std::int64_t rows = 16;  // of a document in each head
  std::int64_t layers = 36;
  std::int64_t query_heads = 8;  // of a layer
  std::int64_t key_heads = 4;
  std::int64_t head_dim = 128;
  int threads = 0;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<std::int64_t> first_numbers(std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int64_t>(i);
  return numbers;
}

Manifest made_up_manifest(const Options& options) {
  Manifest manifest;
  manifest.identity = Json::object();
  manifest.config_hash = "0";
  manifest.head_dim = options.head_dim;
  manifest.row_group_size = 4096;
  manifest.sampler = {
      .type = SamplerType::uniform, .base_rate = 1.0, .min_bucket_size = 256, .max_rows = {}};
  manifest.model_metadata = Json::object();
  for (const auto* key : {metadata::kModel, metadata::kRevision, metadata::kStage, metadata::kDtype,
                          metadata::kDevice, metadata::kVersion})
    manifest.metadata[key] = "made up";
  for (std::int64_t layer = 0; layer < options.layers; ++layer)
    for (const auto kind : {HeadKind::query, HeadKind::key}) {
      HeadGroup group;
      group.layer = layer;
      group.kind = kind;
      group.heads =
          first_numbers(kind == HeadKind::query ? options.query_heads : options.key_heads);
      group.rope = "none";
      manifest.groups.push_back(group);
    }
  return manifest;
}

// (many rows, heads, head_dim) to take blocks from: no two near each other are the same.
constexpr std::int64_t kPool = 8192;
Tensor random_vectors(const Options& options, std::int64_t heads) {
  Tensor vectors({kPool + options.rows, heads, options.head_dim});
  std::mt19937 random(0);
  std::normal_distribution<float> normal;
  std::generate_n(vectors.data<float>(), vectors.size(), [&] { return normal(random); });
  return vectors;
}

// All documents in segments of 64; returns the seconds before each is synced.
double write_segments(const Options& options, Journal& journal) {
  const auto& groups = journal.manifest().groups;
  const auto queries = random_vectors(options, options.query_heads);
  const auto keys = random_vectors(options, options.key_heads);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(options.rows));
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i);
  double seconds = 0.0;
  constexpr std::int64_t kExamples = 64;
  for (std::int64_t begin = 0; begin < options.documents; begin += kExamples) {
    JournalEntry entry{.segment = segment_name(journal.entries().size())};
    SegmentWriter segment(journal.segment_path(entry.segment), groups.size());
    const auto start = Clock::now();
    for (auto row = begin; row < std::min(options.documents, begin + kExamples); ++row) {
      const auto example = segment.add_example({.row = row, .key = row, .source_id = ""});
      for (std::size_t group = 0; group < groups.size(); ++group) {
        const auto& pool = groups[group].kind == HeadKind::query ? queries : keys;
        const auto from = row * 997 % kPool;
        segment.add_block(example, group, positions, {},
                          pool.view().rows(from, from + options.rows));
        entry.rows += options.rows * std::ssize(groups[group].heads);
      }
      ++entry.examples;
    }
    seconds += seconds_since(start);
    entry.checksum = segment.commit();
    journal.add(entry);
  }
  return seconds;
}

void run(const Options& options) {
  set_thread_count(options.threads);
  std::filesystem::remove_all(options.folder);
  const DataRoot root(options.folder);
  const auto folder = root.part({});
  std::filesystem::create_directories(folder);
  Journal::create(folder, made_up_manifest(options));
  Journal journal(folder);
  const auto start = Clock::now();
  const auto storing = write_segments(options, journal);
  const auto segments = seconds_since(start);
  const auto assembly_start = Clock::now();
  assemble(root, {journal}, true);
  const auto assembly = seconds_since(assembly_start);
  const auto rows =
      options.documents * options.rows * options.layers * (options.query_heads + options.key_heads);
  const auto bytes = static_cast<double>(rows * options.head_dim) * sizeof(float);
  const Json line = {{"rows", rows},
                     {"bytes", bytes},
                     {"threads", thread_count()},
                     {"segments_s", segments},
                     {"storing_gb_per_s", bytes / storing / 1e9},
                     {"assembly_s", assembly},
                     {"assembly_rows_per_s", static_cast<double>(rows) / assembly}};
  fmt::print("{}\n", line.dump());
}

}  // namespace
}  // namespace qkscope

int main(int argc, char** argv) {
  qkscope::Options options;
  CLI::App app{"Times how captured rows are stored"};
  app.add_option("--folder", options.folder, "Folder for the capture; emptied first")->required();
  app.add_option("--documents", options.documents, "Documents");
  app.add_option("--rows", options.rows, "Rows of a document in each head");
  app.add_option("--layers", options.layers, "Layers");
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
