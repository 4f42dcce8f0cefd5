#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "analysis/kernels/plane_units.h"
#include "analysis/moments.h"
#include "analysis/pca.h"
#include "analysis/plasticity.h"
#include "analysis/rotation.h"
#include "captures/metadata.h"
#include "core/edge.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "numerics/random.h"
#include "qkscope/analysis.h"
#include "qkscope/captures.h"
#include "qkscope/log.h"
#include "results/scatter.h"

namespace qkscope {
namespace {

class Stopwatch {
 public:
  double lap() {  // seconds since the last call
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// A seeded sample of `limit` rows in their order.
void keep_some(HeadRows& rows, std::int64_t limit, std::uint64_t seed) {
  if (limit <= 0 || rows.size() <= limit) return;
  Random random(seed);
  const auto dim = static_cast<std::size_t>(rows.head_dim);
  std::size_t kept = 0;
  const auto total = static_cast<std::size_t>(rows.size());
  for (std::size_t i = 0; i < total && kept < static_cast<std::size_t>(limit); ++i) {
    // Row i stays with probability (still wanted) / (still to come).
    if (random.below(total - i) >= static_cast<std::uint64_t>(limit) - kept) continue;
    rows.bucket[kept] = rows.bucket[i];
    rows.example_id[kept] = rows.example_id[i];
    if (!rows.example_key.empty()) rows.example_key[kept] = rows.example_key[i];
    rows.position[kept] = rows.position[i];
    if (!rows.token_str.empty()) rows.token_str[kept] = rows.token_str[i];
    std::copy_n(rows.vectors.begin() + static_cast<std::ptrdiff_t>(i * dim), dim,
                rows.vectors.begin() + static_cast<std::ptrdiff_t>(kept * dim));
    ++kept;
  }
  rows.bucket.resize(kept);
  rows.example_id.resize(kept);
  if (!rows.example_key.empty()) rows.example_key.resize(kept);
  rows.position.resize(kept);
  if (!rows.token_str.empty()) rows.token_str.resize(kept);
  rows.vectors.resize(kept * dim);
}

// Hands out large buffers, so that the heads after the first find their memory mapped.
class SparePlaneUnits {
 public:
  std::unique_ptr<PlaneUnits> take() {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) return std::make_unique<PlaneUnits>();
    auto units = std::move(spare_.back());
    spare_.pop_back();
    return units;
  }
  void give_back(std::unique_ptr<PlaneUnits> units) {
    const std::lock_guard lock(mutex_);
    spare_.push_back(std::move(units));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<PlaneUnits>> spare_;  // at most one per thread
};

// Query heads that read one key head: the key file is read, and its moments are taken, once.
struct Group {
  HeadId key;
  std::vector<std::size_t> heads;  // indices into the run's reports
};

class Runner {
 public:
  Runner(const AnalyzeOptions& options, AnalysisRun& run) : options_(options), run_(run) {}

  void run_group(const Group& group) {
    Stopwatch watch;
    AnalysisTimes times;
    HeadFile key_file;
    CentredRows keys;
    try {
      key_file = read(group.key);
      times.read += watch.lap();
      keys = centre(rows_of(key_file.rows));
      times.moments += watch.lap();
    } catch (const Error& error) {
      for (const auto i : group.heads) fail(run_.heads[i], error.kind(), error.what());
      return;
    }
    for (const auto i : group.heads) {
      HeadReport& report = run_.heads[i];
      try {
        run_head(report, key_file, keys, times);
      } catch (const Error& error) {
        fail(report, error.kind(), error.what());
      } catch (const std::exception& error) {
        fail(report, ErrorKind::failure, error.what());
      }
    }
    const std::lock_guard lock(mutex_);
    run_.times.read += times.read;
    run_.times.moments += times.moments;
    run_.times.pca += times.pca;
    run_.times.rotation += times.rotation;
    run_.times.plasticity += times.plasticity;
  }

 private:
  HeadFile read(const HeadId& id) const {
    const std::string path = head_file_path(options_.data_root, id);
    HeadFile file = read_head_file(path);
    if (file.rows.size() == 0) bad_input("{}: no rows", path);
    const auto salt = static_cast<std::uint64_t>(id.layer) << 32 |
                      static_cast<std::uint64_t>(id.head) << 1 | (id.kind == HeadKind::key ? 1 : 0);
    keep_some(file.rows, options_.max_tokens, options_.seed ^ (salt + 1) * 0x9E3779B97F4A7C15u);
    return file;
  }

  static void fail(HeadReport& report, ErrorKind kind, const std::string& message) {
    report.pca.reset();
    report.rotation.reset();
    report.plasticity.reset();
    report.error = message;
    report.error_kind = kind;
  }

  void run_head(HeadReport& report, const HeadFile& key_file, const CentredRows& keys,
                AnalysisTimes& times);

  const AnalyzeOptions& options_;
  AnalysisRun& run_;
  SparePlaneUnits units_;
  std::mutex mutex_;
};

void Runner::run_head(HeadReport& report, const HeadFile& key_file, const CentredRows& keys,
                      AnalysisTimes& times) {
  Stopwatch watch;
  const HeadFile file = read(report.query);
  times.read += watch.lap();
  const std::string path = head_file_path(options_.data_root, report.query);
  if (file.rows.head_dim != key_file.rows.head_dim)
    bad_input("{}: vectors have {} numbers, those of key head {} have {}", path, file.rows.head_dim,
              report.k_head, key_file.rows.head_dim);
  if (file.rows.sliding_window != key_file.rows.sliding_window)
    bad_input("{}: sliding window {}, its key head {} has {}", path,
              file.rows.sliding_window.value_or(0), report.k_head,
              key_file.rows.sliding_window.value_or(0));
  RopeInfo rope = rope_info(file.metadata, path);
  if (rope.use == RopeUse::unknown && !options_.nope_layers.empty()) {
    const auto& nope = options_.nope_layers;
    rope.use = std::find(nope.begin(), nope.end(), report.query.layer) != nope.end()
                   ? RopeUse::nope
                   : RopeUse::rope;
  }
  report.rope = rope.use;
  report.dim = file.rows.head_dim;
  report.n_q = file.rows.size();
  report.n_k = keys.size();
  const CentredRows queries = centre(rows_of(file.rows));
  report.positions_vary = queries.position_scatter > 0 && keys.position_scatter > 0;
  const PooledMoments pooled = pool(queries, keys);
  times.moments += watch.lap();
  if (options_.pca) report.pca = combined_pca(queries, keys, pooled, options_.pca_options);
  times.pca += watch.lap();
  if (options_.rotation) {
    RotationOptions rotation = options_.rotation_options;
    rotation.inv_freq = rope.inv_freq;
    auto units = units_.take();
    report.rotation = planar_rotation(queries, keys, pooled, rotation, units.get());
    units_.give_back(std::move(units));
  }
  times.rotation += watch.lap();
  if (options_.plasticity) {
    PlasticityOptions plasticity = options_.plasticity_options;
    plasticity.seed = options_.seed;
    plasticity.sliding_window = file.rows.sliding_window;
    plasticity.sampler = sampler_options(file.metadata, path);
    report.plasticity = attention_plasticity(queries, keys, plasticity);
  }
  times.plasticity += watch.lap();
  if (options_.scatter > 0) {
    const auto& asked = options_.planes_of;
    const bool planes = std::find(asked.begin(), asked.end(), report.query) != asked.end();
    report.scatter = scatter_points({queries, keys, pooled, report.pca ? &*report.pca : nullptr,
                                     report.rotation ? &*report.rotation : nullptr,
                                     file.rows.token_str, key_file.rows.token_str},
                                    options_.scatter, planes ? options_.rotation_options.pairs : 0);
  }
}

std::vector<Group> group_by_key(const AnalyzeOptions& options, const CaptureIndex& index,
                                AnalysisRun& run) {
  std::map<HeadId, Group> groups;
  for (const auto& query : index.queries) {
    HeadReport report;
    report.query = query;
    try {
      report.k_head = key_head_of(index, query, options.head_counts);
      const HeadId key{query.layer, report.k_head, HeadKind::key};
      if (!std::binary_search(index.keys.begin(), index.keys.end(), key))
        bad_input("{}: there is no such file; query head {} of layer {} reads it",
                  head_file_path(options.data_root, key), query.head, query.layer);
      auto& group = groups[key];
      group.key = key;
      group.heads.push_back(run.heads.size());
    } catch (const Error& error) {
      report.error = error.what();
      report.error_kind = error.kind();
    }
    run.heads.push_back(std::move(report));
  }
  std::vector<Group> list;
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  return list;
}

// Heads asked for by name must be there: a picture of nothing would say nothing.
void check_planes_of(const AnalyzeOptions& options, const CaptureIndex& index) {
  if (!options.planes_of.empty() && (!options.rotation || options.scatter == 0))
    bad_input(
        "planes of single heads come from the rotation and the rows kept for pictures; expected "
        "both to be on (--only, --scatter)");
  for (const auto& head : options.planes_of)
    if (!std::binary_search(index.queries.begin(), index.queries.end(), head))
      bad_input("{}: there is no query head {} of layer {} (asked for as {}.{})", options.data_root,
                head.head, head.layer, head.layer, head.head);
}

// What the first head file says that holds for the whole capture.
Metadata capture_metadata(const CaptureIndex& index) {
  Metadata common;
  try {
    const auto all = read_head_metadata(head_file_path(index.data_root, index.queries.front()));
    for (const char* key :
         {metadata::kModel, metadata::kRevision, metadata::kCommit, metadata::kStage,
          metadata::kDtype, metadata::kDevice, metadata::kVersion, metadata::kConfigHash})
      if (const auto found = all.find(key); found != all.end()) common.insert(*found);
  } catch (const Error&) {
    // The head's own report will say what is wrong with its file.
  }
  return common;
}

// The name the capture itself gives its model, else the folder's.
std::string default_label(const CaptureIndex& index, const Metadata& capture) {
  if (!index.model.empty()) return index.model;
  if (const auto model = capture.find(metadata::kModel); model != capture.end())
    return model->second;
  return std::filesystem::weakly_canonical(index.data_root).filename().string();
}

}  // namespace

AnalysisRun analyze_capture(const AnalyzeOptions& options, Version headers) {
  return at_edge([&] {
    check_version(headers);
    Stopwatch watch;
    const OneBlasThread one_blas_thread;
    const CaptureIndex index = index_capture(options.data_root);
    AnalysisRun run;
    run.capture = capture_metadata(index);
    run.label = options.label.empty() ? default_label(index, run.capture) : options.label;
    check_planes_of(options, index);
    const auto groups = group_by_key(options, index, run);
    Runner runner(options, run);
    Progress progress({.what = "analyze",
                       .unit = "heads",
                       .total = std::ssize(run.heads),
                       .quiet = options.quiet});
    std::mutex mutex;
    std::int64_t done = 0;
    parallel_for(std::ssize(groups), [&](std::int64_t i) {
      const auto& group = groups[static_cast<std::size_t>(i)];
      runner.run_group(group);
      const std::lock_guard lock(mutex);
      done += std::ssize(group.heads);
      progress.update(done);
    });
    progress.finish();
    run.seconds = watch.lap();
    return run;
  });
}

}  // namespace qkscope
