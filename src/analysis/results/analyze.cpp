#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "analysis/methods/text_groups.h"
#include "analysis/results/capture_heads.h"
#include "analysis/results/head_runner.h"
#include "analysis/results/measures.h"
#include "analysis/results/warnings.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/thread_pool.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "capture/format/capture_source.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "capture/format/stored_run.h"
#include "qkscope/analysis.h"
#include "qkscope/captures.h"
#include "qkscope/experimental/log.h"

namespace qkscope {
namespace {

// Groups of all texts of the capture. Heads of a layer share their sampled positions, so one file
// of each layer and kind lists the texts of all its heads.
TextGroups texts_of(const AnalyzeOptions& options, const std::vector<KeyGroup>& groups,
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
      // The error is stored in the report of the head when the head is analysed.
    }
  });
  std::set<std::int64_t> texts;
  for (const auto& examples : found) texts.insert(examples.begin(), examples.end());
  run.texts = std::ssize(texts);
  if (texts.empty()) texts.insert(0);  // no file lists its texts: one group for all rows
  return TextGroups::of_texts({texts.begin(), texts.end()});
}

// A report with the key head that the query head reads, or with the error that there is none.
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

std::vector<KeyGroup> group_by_key(const AnalyzeOptions& options, const CaptureIndex& index,
                                   const std::vector<HeadId>& queries, AnalysisRun& run) {
  run.heads.resize(queries.size());
  parallel_for(std::ssize(queries), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    run.heads[at] = report_of(queries[at], options, index);
  });
  std::map<HeadId, KeyGroup> groups;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const HeadReport& report = run.heads[i];
    if (!report.error.empty()) continue;
    const HeadId key{report.query.layer, report.k_head, HeadKind::key};
    auto& group = groups[key];
    group.key = key;
    group.heads.push_back(i);
  }
  if (groups.empty())  // all heads fail for the same reason
    throw Error(run.heads.front().error_kind, run.heads.front().error);
  std::vector<KeyGroup> list;
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  return list;
}

// Heads named by --planes-of must exist.
void check_planes_of(const AnalyzeOptions& options, const std::vector<HeadId>& queries) {
  if (!options.planes_of.empty() && (!options.rotation || options.scatter == 0))
    bad_input(
        "planes of single heads come from the rotation and the rows kept for pictures; expected "
        "both to be on (--only, --scatter)");
  for (const auto& head : options.planes_of)
    if (std::ranges::count(queries, head) == 0)
      bad_input("{}: there is no query head {} of layer {} (asked for as {}.{})", options.data_root,
                head.head, head.layer, head.layer, head.head);
}

std::vector<HeadId> keys_of(const std::vector<KeyGroup>& groups) {
  std::vector<HeadId> keys;
  for (const auto& group : groups) keys.push_back(group.key);
  return keys;
}

// Replaces the name of the capture by the folder of its head files, and takes missing head counts
// from the model.
AnalyzeOptions resolved(AnalyzeOptions options, const CaptureIndex& index,
                        const ModelFacts* model) {
  options.data_root = index.data_root;
  if (options.head_counts || model == nullptr) return options;
  if (index.counts) model->check_counts(*index.counts);
  options.head_counts = model->counts();
  return options;
}

// Metadata of one head file that holds for the whole capture.
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
    // The error is stored in the report of the head when the head is analysed.
  }
  return common;
}

// Content of _saver_state.json; empty without one.
std::string state_of(const std::string& data_root) {
  const std::string file = data_root + "/" + layout::kStateFile;
  return path_exists(file) ? std::string(MappedFile(file).text()) : "";
}

// The model name in the capture, else the name of its folder or branch.
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
  // The local cache folder is no name for statistics without a model name: use the address.
  if (run.label == short_name(options.data_root)) run.label = address.last_name();
  return run;
}

// The selected query heads. One file per layer is read to learn its attention window, if needed.
std::vector<HeadId> select_queries(const AnalyzeOptions& options, const CaptureSource& source,
                                   const ModelFacts* model) {
  auto queries = chosen_queries(source.index(), options);
  keep_attention(queries, options, [&](int layer) {
    const auto first = std::ranges::find(queries, layer, &HeadId::layer);
    source.fetch({*first});
    const auto path = head_file_path(options.data_root, *first);
    const HeadRows rows = read_head_file(path).rows;
    if (model != nullptr) model->check_head(*first, rows.head_dim, path);
    return window_in(rows, layer, model);
  });
  source.fetch(queries);
  return queries;
}

// Analyses all groups on all cores and fills run.heads.
void run_groups(std::vector<KeyGroup> groups, HeadRunner& runner, const AnalysisRun& run,
                bool quiet) {
  // Large groups first, so that threads finish at about the same time.
  std::ranges::stable_sort(groups, std::ranges::greater{},
                           [](const KeyGroup& group) { return group.heads.size(); });
  Progress progress(
      {.what = "analyze", .unit = "heads", .total = std::ssize(run.heads), .quiet = quiet});
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
}

AnalysisRun analyze_rows(const AnalyzeOptions& given) {
  if (!given.keys.empty() || given.pre_rope)
    bad_input("{}: not a folder of statistics; --keys and --stage are for those", given.data_root);
  const CaptureSource source(given.data_root, {.quiet = given.quiet, .stop = given.stop});
  const CaptureIndex& index = source.index();
  std::optional<ModelFacts> model;
  if (!given.model.empty()) model.emplace(given.model, given.quiet);
  const ModelFacts* facts = model ? &*model : nullptr;
  AnalyzeOptions options = resolved(given, index, facts);
  const auto queries = select_queries(options, source, facts);
  AnalysisRun run;
  run.capture = capture_metadata(head_file_path(options.data_root, queries.front()));
  run.state = state_of(options.data_root);
  run.label = options.label.empty() ? default_label(source, run.capture) : options.label;
  check_planes_of(options, queries);
  const auto groups = group_by_key(options, index, queries, run);
  source.fetch(keys_of(groups));
  Stopwatch watch;  // excludes downloads
  const TextGroups texts = texts_of(options, groups, run);
  if (options.plasticity) options.plasticity_options = shared_profile(options, run.heads);
  HeadRunner runner(options, index, facts, texts, run);
  run_groups(groups, runner, run, options.quiet);
  if (options.errors) run.errors = mean_errors(run, options);
  add_messages(run, options);
  run.seconds = watch.lap();
  return run;
}

}  // namespace

AnalysisRun analyze_capture(const AnalyzeOptions& options) {
  return translate_exceptions([&] {
    if (const auto address = parse_store_address(options.data_root);
        address && stored_kind(*address) == StoredRun::kStatistics)
      return analyze_stored_statistics(options, *address);
    return is_statistics_folder(options.data_root) ? analyze_statistics(options)
                                                   : analyze_rows(options);
  });
}

}  // namespace qkscope
