#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "analysis/methods/jackknife.h"
#include "analysis/methods/moments.h"
#include "analysis/methods/pca.h"
#include "analysis/methods/plasticity.h"
#include "analysis/methods/rotation.h"
#include "analysis/methods/text_groups.h"
#include "analysis/results/analyze_statistics.h"
#include "analysis/results/few_rows.h"
#include "analysis/results/head_filter.h"
#include "analysis/results/mean_errors.h"
#include "analysis/results/model_facts.h"
#include "analysis/results/scatter.h"
#include "analysis/results/shared_profile.h"
#include "base/core/error.h"
#include "base/core/huge_pages.h"
#include "base/core/log.h"
#include "base/core/thread_pool.h"
#include "base/core/translate_exceptions.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "base/numerics/random.h"
#include "capture/format/capture_source.h"
#include "capture/format/head_examples.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "capture/format/stored_run.h"
#include "qkscope/analysis.h"
#include "qkscope/captures.h"
#include "qkscope/experimental/log.h"

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

// Hands out what a head leaves for the next one.
class SpareMemory {
 public:
  std::unique_ptr<RotationMemory> take() {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) return std::make_unique<RotationMemory>();
    auto memory = std::move(spare_.back());
    spare_.pop_back();
    return memory;
  }
  void give_back(std::unique_ptr<RotationMemory> memory) {
    const std::lock_guard lock(mutex_);
    spare_.push_back(std::move(memory));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<RotationMemory>> spare_;  // at most one per thread
};

// Query heads that read one key head: the key file is read, and its moments are taken, once.
struct Group {
  HeadId key;
  std::vector<std::size_t> heads;  // indices into the run's reports
};

// A key head, for all query heads that read it.
struct KeyHead {
  HeadFile file;
  GroupedRows rows;
  std::vector<Moments> without_group;
  std::vector<SideComponent> components;
  std::vector<double> signs;
};

// A number of its own for every head, from the seed of the run.
std::uint64_t seed_of(const HeadId& id, std::uint64_t seed) {
  const auto salt = static_cast<std::uint64_t>(id.layer) << 32 |
                    static_cast<std::uint64_t>(id.head) << 1 | (id.kind == HeadKind::key ? 1 : 0);
  return seed ^ (salt + 1) * 0x9E3779B97F4A7C15u;
}

class Runner {
 public:
  Runner(const AnalyzeOptions& options, const CaptureIndex& index, const ModelFacts* model,
         const TextGroups& texts, AnalysisRun& run)
      : options_(options), index_(index), model_(model), texts_(texts), run_(run) {}

  void run_group(const Group& group) {
    [[maybe_unused]] thread_local const bool asked = (ask_for_huge_pages(), true);
    Stopwatch watch;
    AnalysisTimes times;
    KeyHead key;
    try {
      key.file = read(group.key);
      times.read += watch.lap();
      key.rows = centre_rows_of(key.file);
      times.moments += watch.lap();
      key.without_group = leave_groups_out(key.rows);
      times.errors += watch.lap();
      if (options_.pca)
        key.components = separate_pca(key.rows.rows, options_.pca_options.separate_components);
      times.pca += watch.lap();
      if (options_.plasticity) key.signs = key_signs(key.rows.rows);
      times.plasticity += watch.lap();
    } catch (const Error& error) {
      for (const auto i : group.heads) fail(run_.heads[i], error.kind(), error.what());
      return;
    }
    for (const auto i : group.heads) {
      HeadReport& report = run_.heads[i];
      try {
        run_head(report, key, times);
        // Once for each key head, however many queries read it.
        report.k_components = std::exchange(key.components, {});
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
    run_.times.errors += times.errors;
  }

 private:
  HeadFile read(const HeadId& id) const {
    const std::string path = head_file_path(options_.data_root, id);
    HeadFile file = read_head_file(path);
    if (file.rows.size() == 0) bad_input("{}: no rows", path);
    if (model_ != nullptr) model_->check_head(id, file.rows.head_dim, path);
    if (model_ != nullptr && file.rows.window_unsaid)
      file.rows.sliding_window = model_->window(id.layer);
    keep_some(file.rows, options_.max_tokens, seed_of(id, options_.seed));
    return file;
  }

  static void fail(HeadReport& report, ErrorKind kind, const std::string& message) {
    report.pca.reset();
    report.rotation.reset();
    report.plasticity.reset();
    report.without_group.clear();
    report.error = message;
    report.error_kind = kind;
  }

  // With what groups of texts contribute, where that is wanted.
  GroupedRows centre_rows_of(const HeadFile& file) const {
    const Rows rows = rows_of(file.rows);
    return options_.errors ? centre_groups(rows, texts_) : GroupedRows{centre(rows), {}};
  }

  void run_head(HeadReport& report, const KeyHead& key, AnalysisTimes& times);
  void run_rotation(HeadReport& report, const CentredRows& queries, const CentredRows& keys,
                    const PooledMoments& pooled, const std::vector<double>& inv_freq);

  // The file's own word, then that of --nope-layers, then the model's.
  RopeInfo rope_of(const HeadFile& file, int layer, const std::string& path) const {
    RopeInfo rope = rope_info(file.metadata, path);
    if (rope.use != RopeUse::unknown) return rope;
    if (model_ != nullptr) rope = model_->rope(layer);
    const auto& nope = options_.nope_layers;
    if (nope.empty()) return rope;
    const bool without = std::find(nope.begin(), nope.end(), layer) != nope.end();
    rope.use = without ? RopeUse::nope : RopeUse::rope;
    if (without) rope.inv_freq.clear();
    return rope;
  }

  const AnalyzeOptions& options_;
  const CaptureIndex& index_;
  const ModelFacts* model_;  // null where none is named
  const TextGroups& texts_;
  AnalysisRun& run_;
  SpareMemory memory_;
  std::mutex mutex_;
};

void Runner::run_rotation(HeadReport& report, const CentredRows& queries, const CentredRows& keys,
                          const PooledMoments& pooled, const std::vector<double>& inv_freq) {
  RotationOptions rotation = options_.rotation_options;
  rotation.inv_freq = inv_freq;
  rotation.seed = seed_of(report.query, options_.seed);
  auto memory = memory_.take();
  report.rotation = planar_rotation(queries, keys, pooled, rotation, memory.get());
  memory_.give_back(std::move(memory));
}

void Runner::run_head(HeadReport& report, const KeyHead& key, AnalysisTimes& times) {
  Stopwatch watch;
  const HeadFile file = read(report.query);
  const HeadFile& key_file = key.file;
  const CentredRows& keys = key.rows.rows;
  times.read += watch.lap();
  const std::string path = head_file_path(options_.data_root, report.query);
  if (file.rows.head_dim != key_file.rows.head_dim)
    bad_input("{}: vectors have {} numbers, those of key head {} have {}", path, file.rows.head_dim,
              report.k_head, key_file.rows.head_dim);
  if (file.rows.sliding_window != key_file.rows.sliding_window)
    bad_input("{}: sliding window {}, its key head {} has {}", path,
              file.rows.sliding_window.value_or(0), report.k_head,
              key_file.rows.sliding_window.value_or(0));
  const RopeInfo rope = rope_of(file, report.query.layer, path);
  report.rope = rope.use;
  report.dim = file.rows.head_dim;
  report.n_q = file.rows.size();
  report.n_k = keys.size();
  const GroupedRows grouped = centre_rows_of(file);
  const CentredRows& queries = grouped.rows;
  report.positions_vary = queries.position_scatter > 0 && keys.position_scatter > 0;
  const PooledMoments pooled = pool(queries, keys);
  times.moments += watch.lap();
  if (options_.pca) {
    report.pca = combined_pca(queries, keys, pooled, options_.pca_options, &texts_);
    report.q_components = separate_pca(queries, options_.pca_options.separate_components);
  }
  times.pca += watch.lap();
  if (options_.rotation) run_rotation(report, queries, keys, pooled, rope.inv_freq);
  times.rotation += watch.lap();
  if (options_.plasticity) {
    PlasticityOptions plasticity = options_.plasticity_options;
    plasticity.seed = options_.seed;
    plasticity.sliding_window = file.rows.sliding_window;
    plasticity.sampler = sampler_options(file.metadata, path);
    if (!plasticity.sampler) plasticity.sampler = index_.sampler;
    plasticity.text_groups = texts_.first();
    plasticity.replicates = options_.errors;
    report.plasticity = attention_plasticity(queries, keys, key.signs, plasticity);
  }
  times.plasticity += watch.lap();
  if (options_.errors)
    report.without_group =
        replicates(report, leave_groups_out(grouped), key.without_group, options_);
  if (report.rotation) report.rotation->active_axes = {};  // many numbers that nothing else needs
  times.errors += watch.lap();
  if (options_.scatter > 0) {
    const auto& asked = options_.planes_of;
    const bool planes = std::find(asked.begin(), asked.end(), report.query) != asked.end();
    report.scatter = scatter_points({queries, keys, pooled, report.pca ? &*report.pca : nullptr,
                                     report.rotation ? &*report.rotation : nullptr,
                                     file.rows.token_str, key_file.rows.token_str},
                                    options_.scatter, planes ? options_.rotation_options.pairs : 0);
  }
}

// The texts of the capture. Heads of a layer share their positions, so that one file of each layer
// and kind tells the texts of all.
TextGroups texts_of(const AnalyzeOptions& options, const std::vector<Group>& groups,
                    AnalysisRun& run) {
  std::map<std::pair<int, HeadKind>, HeadId> files;
  for (const auto& group : groups) {
    files.try_emplace({group.key.layer, HeadKind::key}, group.key);
    files.try_emplace({group.key.layer, HeadKind::query}, run.heads[group.heads.front()].query);
  }
  std::vector<HeadId> list;
  list.reserve(files.size());
  for (const auto& [place, id] : files) list.push_back(id);
  std::vector<std::vector<std::int64_t>> found(list.size());
  parallel_for(std::ssize(list), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    try {
      auto examples = read_head_examples(head_file_path(options.data_root, list[at]));
      examples.erase(std::unique(examples.begin(), examples.end()), examples.end());
      found[at] = std::move(examples);
    } catch (const Error&) {
      // The head's own report will say what is wrong with its file.
    }
  });
  std::set<std::int64_t> texts;
  for (const auto& examples : found) texts.insert(examples.begin(), examples.end());
  run.texts = std::ssize(texts);
  return TextGroups::of_texts({texts.begin(), texts.end()});
}

// The key head that a query head reads, or why there is none.
HeadReport report_of(const HeadId& query, const AnalyzeOptions& options,
                     const CaptureIndex& index) {
  HeadReport report;
  report.query = query;
  try {
    report.k_head = key_head_of(index, query, options.head_counts);
    const HeadId key{query.layer, report.k_head, HeadKind::key};
    if (!std::binary_search(index.keys.begin(), index.keys.end(), key))
      bad_input("{}: there is no such file; query head {} of layer {} reads it",
                head_file_path(options.data_root, key), query.head, query.layer);
  } catch (const Error& error) {
    report.error = error.what();
    report.error_kind = error.kind();
  }
  return report;
}

std::vector<Group> group_by_key(const AnalyzeOptions& options, const CaptureIndex& index,
                                const std::vector<HeadId>& queries, AnalysisRun& run) {
  run.heads.resize(queries.size());
  parallel_for(std::ssize(queries), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    run.heads[at] = report_of(queries[at], options, index);
  });
  std::map<HeadId, Group> groups;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const HeadReport& report = run.heads[i];
    if (!report.error.empty()) continue;
    const HeadId key{report.query.layer, report.k_head, HeadKind::key};
    auto& group = groups[key];
    group.key = key;
    group.heads.push_back(i);
  }
  if (groups.empty())  // nothing to read, and one reason for every head
    throw Error(run.heads.front().error_kind, run.heads.front().error);
  std::vector<Group> list;
  list.reserve(groups.size());
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  return list;
}

// Heads asked for by name must be there: a picture of nothing would say nothing.
void check_planes_of(const AnalyzeOptions& options, const std::vector<HeadId>& queries) {
  if (!options.planes_of.empty() && (!options.rotation || options.scatter == 0))
    bad_input(
        "planes of single heads come from the rotation and the rows kept for pictures; expected "
        "both to be on (--only, --scatter)");
  for (const auto& head : options.planes_of)
    if (std::find(queries.begin(), queries.end(), head) == queries.end())
      bad_input("{}: there is no query head {} of layer {} (asked for as {}.{})", options.data_root,
                head.head, head.layer, head.layer, head.head);
}

std::vector<HeadId> keys_of(const std::vector<Group>& groups) {
  std::vector<HeadId> keys;
  keys.reserve(groups.size());
  for (const auto& group : groups) keys.push_back(group.key);
  return keys;
}

// The options with what the capture's name and the named model stand for: where the head files lie,
// and head counts.
AnalyzeOptions resolved(AnalyzeOptions options, const CaptureIndex& index,
                        const ModelFacts* model) {
  options.data_root = index.data_root;
  if (options.head_counts || model == nullptr) return options;
  if (index.counts) model->check_counts(*index.counts);
  options.head_counts = model->counts();
  return options;
}

// What a head file says that holds for the whole capture.
Metadata capture_metadata(const std::string& file) {
  Metadata common;
  try {
    const auto all = read_head_metadata(file);
    for (const char* key :
         {metadata::kModel, metadata::kRevision, metadata::kCommit, metadata::kStage,
          metadata::kDtype, metadata::kDevice, metadata::kVersion, metadata::kConfigHash})
      if (const auto found = all.find(key); found != all.end()) common.insert(*found);
    if (const auto model = common.find(metadata::kModel); model != common.end())
      model->second = short_name(model->second);
  } catch (const Error&) {
    // The head's own report will say what is wrong with its file.
  }
  return common;
}

// _saver_state.json; the index was read from it.
std::string state_of(const std::string& data_root) {
  const std::string file = data_root + "/" + layout::kStateFile;
  return path_exists(file) ? std::string(MappedFile(file).text()) : "";
}

// The name the capture itself gives its model, else the folder's or the branch's.
std::string default_label(const CaptureSource& source, const Metadata& capture) {
  if (!source.index().model.empty()) return short_name(source.index().model);
  if (const auto model = capture.find(metadata::kModel); model != capture.end())
    return short_name(model->second);
  return source.short_name();
}

AnalysisRun analyze_stored_statistics(const AnalyzeOptions& given, const StoreAddress& address) {
  auto options = given;
  options.data_root = fetch_folder(given.data_root, given.quiet);
  auto run = analyze_statistics(options);
  // Statistics that do not say their model are called by their folder.
  if (run.label == short_name(options.data_root)) run.label = address.last_name();
  return run;
}

}  // namespace

AnalysisRun analyze_capture(const AnalyzeOptions& given) {
  return translate_exceptions([&] {
    if (const auto address = parse_store_address(given.data_root);
        address && stored_kind(*address) == StoredRun::kStatistics)
      return analyze_stored_statistics(given, *address);
    if (is_statistics_folder(given.data_root)) return analyze_statistics(given);
    if (!given.keys.empty() || given.pre_rope)
      bad_input("{}: not a folder of statistics; --keys and --stage are for those",
                given.data_root);
    const CaptureSource source(given.data_root, {.quiet = given.quiet, .stop = given.stop});
    const CaptureIndex& index = source.index();
    std::optional<ModelFacts> model;
    if (!given.model.empty()) model.emplace(given.model, given.quiet);
    const ModelFacts* facts = model ? &*model : nullptr;
    const AnalyzeOptions options = resolved(given, index, facts);
    const auto queries = chosen_queries(index, options);
    source.fetch(queries);
    AnalysisRun run;
    run.capture = capture_metadata(head_file_path(options.data_root, queries.front()));
    run.state = state_of(options.data_root);
    run.label = options.label.empty() ? default_label(source, run.capture) : options.label;
    check_planes_of(options, queries);
    auto groups = group_by_key(options, index, queries, run);
    source.fetch(keys_of(groups));
    Stopwatch watch;  // what the network took is not the analyses' time
    const TextGroups texts = texts_of(options, groups, run);
    AnalyzeOptions shared = options;
    if (options.plasticity) shared.plasticity_options = shared_profile(options, run.heads);
    Runner runner(shared, index, facts, texts, run);
    // The most work first: towards the end little is left for one thread alone.
    std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
      return a.heads.size() > b.heads.size();
    });
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
    if (options.errors) run.errors = mean_errors(run, options);
    run.warnings = warnings_of(run);
    for (const auto& warning : run.warnings) log::warn("{}: {}", run.label, warning);
    run.seconds = watch.lap();
    return run;
  });
}

}  // namespace qkscope
