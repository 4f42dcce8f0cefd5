// Measures how fast sampled rows are written to segments, as during a forward pass, and from
// segments to the final Parquet files. The vectors are made up; no model runs. Prints one JSON
// line.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/core/clock.h"
#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "capture/writer/assemble.h"
#include "planted_parts.h"

namespace qkscope {
namespace {

struct Options {
  std::string folder;
  PlantedParts parts{.pool =
                         8192};  // more rows than a row group, so that no vector repeats within one
  Shard shard;
  int threads = 0;
  double ahead = 0;  // seconds over which segments arrive
};

std::int64_t rows_of_all(const PlantedParts& parts) {
  return parts.documents * parts.rows * parts.layers * (parts.query_heads + parts.key_heads);
}

void write_shard(const Options& options, const PlantedRows& rows, const Shard& shard) {
  const auto address = parse_store_uri(options.folder);
  if (!address) {
    write_planted_part(DataRoot(options.folder), options.parts, rows, shard);
    return;
  }
  StoredRun stored(*address, StoredRun::kCapture);
  stored.begin_or_join_run(planted_manifest(options.parts), shard, false);
  write_planted_part(DataRoot(stored.local_root()), options.parts, rows, shard, &stored);
}

// Writes one shard, or all shards, for a later merge.
void write_shards(const Options& options) {
  const PlantedRows rows(options.parts);
  const auto start = Clock::now();
  const bool one = options.shard.index >= 0;
  for (auto i = one ? options.shard.index : 0; i < options.shard.count; ++i) {
    write_shard(options, rows, {i, options.shard.count});
    if (one) break;
  }
  fmt::print("{}\n",
             Json{{"shard", options.shard.index}, {"seconds", seconds_since(start)}}.dump());
}

// Returns the seconds from the last segment to the finished files; segments arrive over `ahead`
// seconds.
double time_assembly(const DataRoot& root, double ahead) {
  const Journal part(root.part_folder({}));
  if (ahead == 0) {
    const auto start = Clock::now();
    CaptureAssembler(root, {part}).finish(true);
    root.move_final_files_to_root();
    return seconds_since(start);
  }
  CaptureAssembler assembly(root, {part.copy_without_entries()});
  assembly.start_background_assembly();
  const std::chrono::duration<double> pause(ahead / static_cast<double>(part.entries().size()));
  for (const auto& entry : part.entries()) {
    std::this_thread::sleep_for(pause);
    assembly.enqueue_segment(entry);
  }
  const auto start = Clock::now();
  assembly.finish(true);
  root.move_final_files_to_root();
  return seconds_since(start);
}

void run(const Options& options) {
  if (options.shard.count > 1) return write_shards(options);
  set_thread_count(options.threads);
  std::filesystem::remove_all(options.folder);
  const DataRoot root(options.folder);
  const PlantedRows made_up(options.parts);
  const auto start = Clock::now();
  const auto storing = write_planted_part(root, options.parts, made_up, {});
  const auto segments = seconds_since(start);
  const auto assembly = time_assembly(root, options.ahead);
  const auto rows = rows_of_all(options.parts);
  const auto bytes = static_cast<double>(rows * options.parts.head_dim) * sizeof(float);
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
  app.add_option("--folder", options.folder,
                 "Folder for the capture, emptied first; an address with --shards")
      ->required();
  app.add_option("--documents", options.parts.documents, "Documents");
  app.add_option("--rows", options.parts.rows, "Rows of a document in each head");
  app.add_option("--layers", options.parts.layers, "Layers");
  app.add_option("--q-heads", options.parts.query_heads, "Query heads of a layer");
  app.add_option("--k-heads", options.parts.key_heads, "Key heads of a layer");
  app.add_option("--segment", options.parts.segment_size, "Documents of a segment");
  app.add_option("--shard", options.shard.index,
                 "Write only this part, and merge nothing (-1: all parts)");
  app.add_option("--shards", options.shard.count, "Of so many parts");
  app.add_option("--ahead", options.ahead,
                 "Make files while segments come, over so many seconds (default: afterwards)");
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
