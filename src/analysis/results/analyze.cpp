// Selects heads from a capture or from statistics and analyses them.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "analysis/methods/moments.h"
#include "analysis/methods/plasticity.h"
#include "analysis/results/head_results.h"
#include "base/core/error.h"
#include "base/core/project.h"
#include "base/core/thread_pool.h"
#include "base/io/file_list.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "capture/format/capture_source.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "capture/format/stored_run.h"
#include "input/hub/client.h"
#include "qkscope/analysis.h"
#include "qkscope/captures.h"

namespace qkscope {
namespace {

void check_layers_captured(const CaptureIndex& index, const std::vector<int>& layers) {
  std::set<int> there;
  for (const auto& query : index.queries) there.insert(query.layer);
  for (const int layer : layers)
    if (!there.contains(layer))
      reject("{}: there is no layer {}; the capture has layers {}", index.data_root, layer,
             fmt::join(there, ", "));
}

void check_heads_captured(const CaptureIndex& index, const std::vector<HeadId>& heads) {
  for (const auto& head : heads) {
    std::vector<int> there;
    for (const auto& query : index.queries)
      if (query.layer == head.layer) there.push_back(query.head);
    if (there.empty()) check_layers_captured(index, {head.layer});
    if (std::ranges::count(there, head.head) == 0)
      reject("{}: there is no query head {} in layer {}; the capture has heads {} there",
             index.data_root, head.head, head.layer, fmt::join(there, ", "));
  }
}

// Returns the jackknife groups of the texts in the capture. Heads of a layer share their sampled
// positions, so reading one file per layer and kind (query or key) yields all texts.
JackknifeGroups group_texts(const AnalyzeOptions& options, const std::vector<KeyHeadGroup>& groups,
                            AnalysisRun& run) {
  std::map<std::pair<int, HeadKind>, HeadId> files;
  for (const auto& group : groups) {
    files.try_emplace({group.key.layer, HeadKind::key}, group.key);
    files.try_emplace({group.key.layer, HeadKind::query}, run.heads[group.heads.front()].query);
  }
  const auto list = to_vector(files, [](const auto& file) { return file.second; });
  const auto found = parallel_map(list, [&](const HeadId& id) {
    // Ignore bad input: the analysis of this head reports it later.
    auto examples = value_or_on_bad_input(
        [&] { return read_head_example_ids(head_file_path(options.data_root, id)); },
        std::vector<std::int64_t>());
    examples.erase(std::unique(examples.begin(), examples.end()), examples.end());
    return examples;
  });
  std::set<std::int64_t> texts;
  for (const auto& examples : found) texts.insert(examples.begin(), examples.end());
  run.texts = std::ssize(texts);
  if (texts.empty()) texts.insert(0);  // no file lists its texts: one group for all rows
  return JackknifeGroups::from_texts({texts.begin(), texts.end()});
}

// Returns a report without results: it holds only the key head of `query` (GQA), or an error.
HeadReport make_head_report(const HeadId& query, const AnalyzeOptions& options,
                            const CaptureIndex& index) {
  HeadReport report;
  report.query = query;
  try {
    report.k_head = key_head_of(index, query, options.head_counts);
    const HeadId key{query.layer, report.k_head, HeadKind::key};
    if (!std::binary_search(index.keys.begin(), index.keys.end(), key))
      reject("{}: there is no such file; query head {} of layer {} reads it",
             head_file_path(options.data_root, key), query.head, query.layer);
  } catch (const Error& error) {
    mark_head_failed(report, error);
  }
  return report;
}

std::vector<KeyHeadGroup> group_query_heads(const AnalyzeOptions& options,
                                            const CaptureIndex& index,
                                            const std::vector<HeadId>& queries, AnalysisRun& run) {
  run.heads = parallel_map(
      queries, [&](const HeadId& query) { return make_head_report(query, options, index); });
  std::map<HeadId, KeyHeadGroup> groups;
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
  return to_vector(groups, [](const auto& entry) { return entry.second; });
}

// Throws a bad-input error if the capture lacks a head listed in --planes-of.
void check_plane_heads(const AnalyzeOptions& options, const std::vector<HeadId>& queries) {
  if (!options.planes_of.empty() && (!options.rotation || options.scatter == 0))
    reject(
        "planes of single heads come from the rotation and the rows kept for pictures; expected "
        "both to be on (--only, --scatter)");
  for (const auto& head : options.planes_of)
    if (std::ranges::count(queries, head) == 0)
      reject("{}: there is no query head {} of layer {} (asked for as {}.{})", options.data_root,
             head.head, head.layer, head.layer, head.head);
}

// Returns empty metadata for an invalid file; the analysis of its head reports the error.
Metadata read_metadata_or_empty(const std::string& file) {
  return value_or_on_bad_input([&] { return read_head_metadata(file); }, Metadata());
}

// Reads one head's file and returns the metadata fields that are equal for all heads of a capture.
Metadata shared_metadata(const std::string& file) {
  Metadata common;
  const auto all = read_metadata_or_empty(file);
  for (const char* key :
       {metadata::kModel, metadata::kRevision, metadata::kCommit, metadata::kStage,
        metadata::kDtype, metadata::kDevice, metadata::kVersion, metadata::kConfigHash})
    if (const auto found = all.find(key); found != all.end()) common.insert(*found);
  if (const auto model = common.find(metadata::kModel); model != common.end())
    model->second = id_or_base_name(model->second);
  return common;
}

// Returns the query heads to analyse. With --attention, the head file of the first head of each
// layer tells whether that layer has full or sliding attention.
std::vector<HeadId> fetch_query_heads(const AnalyzeOptions& options, const CaptureSource& source,
                                      const ModelInfo* model) {
  auto queries = select_query_heads(source.capture_index(), options);
  keep_heads_of_attention_kind(queries, options, [&](int layer) {
    const auto first = std::ranges::find(queries, layer, &HeadId::layer);
    source.fetch_heads({*first});
    const auto path = head_file_path(options.data_root, *first);
    const HeadRows rows = read_head_file(path).rows;
    if (model != nullptr) model->check_head(*first, rows.head_dim, path);
    return window_of_layer(rows, layer, model);
  });
  source.fetch_heads(queries);
  return queries;
}

// Returns plasticity options with the bins and context length chosen for the first readable head.
PlasticityOptions plasticity_options_with_common_bins(const AnalyzeOptions& options,
                                                      const std::vector<HeadReport>& heads) {
  PlasticityOptions shared = options.plasticity_options;
  check_plasticity_bins(shared);
  for (const auto& head : heads) {
    if (!head.error.empty()) continue;
    try {
      const HeadId id{head.query.layer, head.k_head, HeadKind::key};
      const HeadFile query = read_head_file(head_file_path(options.data_root, head.query));
      const HeadFile key = read_head_file(head_file_path(options.data_root, id));
      const RowsView queries = as_rows_view(query.rows);
      const RowsView keys = as_rows_view(key.rows);
      if (queries.size() == 0 || keys.size() == 0) continue;
      const auto sampler = sampler_options(query.metadata, "");
      const auto buckets = sampler ? BucketRanges(*sampler) : BucketRanges(queries, keys);
      const auto limit = options.max_tokens;
      const auto used = limit > 0 ? std::min(queries.size(), limit) : queries.size();
      const auto grid = choose_plasticity_grid(queries, keys, buckets, used, shared);
      if (grid.bins > 0) shared.profile_bins = grid.bins;
      shared.context = grid.context;
      break;
    } catch (const std::exception&) {
      // Ignore the error: the analysis of this head reports it.
    }
  }
  return shared;
}

// Throws a bad-input error if the file of a head belongs to another run or another head. Returns a
// snapshot of all files, to detect changes during the analysis.
FileSnapshot check_head_files(const CaptureIndex& index, const std::vector<HeadId>& heads) {
  parallel_for(std::ssize(heads), [&](std::int64_t i) {
    const auto& head = heads[static_cast<std::size_t>(i)];
    check_head_metadata(index, head, read_metadata_or_empty(head_file_path(index.data_root, head)));
  });
  FileSnapshot files;
  files.add(index.data_root + "/" + layout::kStateFile);
  for (const auto& head : heads) files.add(head_file_path(index.data_root, head));
  return files;
}

AnalysisRun analyze_captured_rows(const AnalyzeOptions& given) {
  if (!given.keys.empty() || given.pre_rope)
    reject("{}: not a folder of statistics; --keys and --stage are for those", given.data_root);
  const CaptureSource source(given.data_root, {.quiet = given.quiet, .stop = given.stop},
                             given.partial);
  const CaptureIndex& index = source.capture_index();
  std::optional<ModelInfo> model;
  if (!given.model.empty()) model.emplace(given.model, given.quiet);
  const ModelInfo* facts = model ? &*model : nullptr;
  AnalyzeOptions options = given;
  options.data_root = index.data_root;
  if (!options.head_counts && model) {
    if (index.counts) model->check_head_counts(*index.counts);
    options.head_counts = model->head_counts();
  }
  const auto queries = fetch_query_heads(options, source, facts);
  AnalysisRun run;
  run.capture = shared_metadata(head_file_path(options.data_root, queries.front()));
  if (const auto state = options.data_root + "/" + layout::kStateFile; path_exists(state))
    run.state = MappedFile(state).text();
  const auto stored = run.capture.find(metadata::kModel);
  run.label = !options.label.empty()        ? options.label
              : !index.model.empty()        ? id_or_base_name(index.model)
              : stored != run.capture.end() ? id_or_base_name(stored->second)
                                            : source.display_name();
  if (index.partial) run.label += " (partial)";
  check_plane_heads(options, queries);
  const auto groups = group_query_heads(options, index, queries, run);
  auto heads = to_vector(groups, &KeyHeadGroup::key);
  source.fetch_heads(heads);
  heads.insert(heads.end(), queries.begin(), queries.end());
  const auto files = check_head_files(index, heads);
  Stopwatch watch;  // excludes downloads
  const JackknifeGroups texts = group_texts(options, groups, run);
  if (options.plasticity)
    options.plasticity_options = plasticity_options_with_common_bins(options, run.heads);
  analyze_key_head_groups(options, index, facts, texts, groups, run);
  files.check_unchanged();
  if (options.geometry && !options.weights.empty())
    add_weight_ranks(options.weights, options.quiet, run);
  if (options.errors) run.errors = compute_errors_of_means(run, options);
  add_warnings_and_notes(run, options);
  run.seconds = watch.lap_seconds();
  return run;
}

}  // namespace

std::vector<HeadId> select_query_heads(const CaptureIndex& index, const AnalyzeOptions& options) {
  check_layers_captured(index, options.layers);
  check_heads_captured(index, options.heads);
  auto chosen = index.queries;
  std::erase_if(chosen, [&](const HeadId& query) {
    return (!options.layers.empty() && std::ranges::count(options.layers, query.layer) == 0) ||
           (!options.heads.empty() && std::ranges::count(options.heads, query) == 0);
  });
  if (chosen.empty())
    reject("{}: the chosen layers and heads have no head in common", index.data_root);
  return chosen;
}

void keep_heads_of_attention_kind(std::vector<HeadId>& queries, const AnalyzeOptions& options,
                                  const LayerWindowFunction& window_of) {
  if (options.attention == AttentionKind::any) return;
  const bool sliding = options.attention == AttentionKind::sliding;
  std::map<int, bool> kept;
  for (const auto& query : queries)
    if (!kept.contains(query.layer))
      kept[query.layer] = window_of(query.layer).has_value() == sliding;
  std::erase_if(queries, [&](const HeadId& query) { return !kept[query.layer]; });
  if (queries.empty())
    reject("{}: none of the chosen layers has {} attention; leave out --attention",
           options.data_root, sliding ? "sliding" : "full");
}

std::pair<std::string, std::string> split_model_and_revision(const std::string& name) {
  const auto at = path_exists(name) ? std::string::npos : name.find('@');
  return {name.substr(0, at), at == std::string::npos ? "" : name.substr(at + 1)};
}

ModelInfo::ModelInfo(const std::string& name, bool quiet) : name_(name) {
  const auto [model, revision] = split_model_and_revision(name);
  model_ = read_model_config(fetch_config_folder(model, revision, {.quiet = quiet}));
}

HeadCounts ModelInfo::head_counts() const {
  return {static_cast<int>(model_.n_heads), static_cast<int>(model_.n_kv_heads)};
}

RopeInfo ModelInfo::rope(int layer) const {
  const auto* rope = model_.rope(layer);
  if (rope == nullptr) return {.use = RopeUse::nope, .inv_freq = {}};
  const auto frequencies = rope_frequencies(*rope, model_.max_positions);
  RopeInfo info{.use = RopeUse::rope,
                .inv_freq = {frequencies.inverse.begin(), frequencies.inverse.end()}};
  std::sort(info.inv_freq.begin(), info.inv_freq.end(), std::greater<>());
  return info;
}

std::optional<std::int32_t> ModelInfo::window(int layer) const {
  const auto tokens = model_.layers[static_cast<std::size_t>(layer)].window;
  return tokens > 0 ? std::optional(static_cast<std::int32_t>(tokens)) : std::nullopt;
}

void ModelInfo::check_head_counts(const HeadCounts& captured) const {
  const auto own = head_counts();
  if (captured.query_heads != own.query_heads || captured.key_heads != own.key_heads)
    reject(
        "--model {}: has {} query and {} key heads per layer, but the capture's {} says {} and {}; "
        "name the model that was captured",
        name_, own.query_heads, own.key_heads, layout::kStateFile, captured.query_heads,
        captured.key_heads);
}

void ModelInfo::check_head(const HeadId& id, int head_dim, const std::string& file) const {
  if (id.layer >= model_.n_layers)
    reject("{}: --model {} has {} layers only; name the model that was captured", file, name_,
           model_.n_layers);
  if (const auto width = model_.d_head_of(model_.layer(id.layer)); head_dim != width)
    reject(
        "{}: vectors have {} numbers, but heads of --model {} have {}; name the model that was "
        "captured",
        file, head_dim, name_, width);
}

AnalysisRun analyze_capture(const AnalyzeOptions& options) {
  return translate_exceptions([&] {
    if (const auto address = parse_store_uri(options.data_root);
        address && stored_run_kind(*address) == StoredRun::kStatistics) {
      auto local = options;
      local.data_root = fetch_stored_folder(options.data_root, options.quiet);
      auto run = analyze_statistics(local);
      // Label statistics without a model name by their address, not by the local cache folder.
      if (run.label == id_or_base_name(local.data_root)) run.label = address->last_path_component();
      return run;
    }
    return is_statistics_folder(options.data_root) ? analyze_statistics(options)
                                                   : analyze_captured_rows(options);
  });
}

}  // namespace qkscope
