#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "analysis/methods/planted.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "base/io/json.h"
#include "base/io/output_file.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "qkscope/analysis.h"
#include "qkscope/captures.h"

namespace qkscope {
namespace {

constexpr char kModelName[] = "planted";

std::vector<HeadId> select_query_heads(const PlantedCaptureOptions& options) {
  const std::int64_t total = std::int64_t{options.layers} * options.query_heads;
  const std::int64_t count =
      options.heads > 0 ? std::min<std::int64_t>(options.heads, total) : total;
  std::vector<HeadId> queries;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = i * total / count;
    queries.push_back({static_cast<int>(at / options.query_heads),
                       static_cast<int>(at % options.query_heads), HeadKind::query});
  }
  return queries;
}

bool layer_has_rope(const PlantedCaptureOptions& options, int layer) {
  return options.nope_every <= 0 || (layer + 1) % options.nope_every != 0;
}

int key_head_of(const PlantedCaptureOptions& options, const HeadId& id) {
  return id.kind == HeadKind::key ? id.head : id.head / (options.query_heads / options.key_heads);
}

// Query heads use the seed of their key head, so they share its drift and separation axes.
PlantedOptions planted_head_options(const PlantedCaptureOptions& options, const HeadId& id) {
  PlantedOptions head = options.head;
  head.seed = options.head.seed * 1000003 +
              static_cast<std::uint64_t>(id.layer * 1000 + key_head_of(options, id));
  head.planes.clear();
  if (!layer_has_rope(options, id.layer)) return head;
  // Rows rotate with position in `active_planes` planes, at RoPE frequencies 4, 6, 8, ...
  const auto frequencies = unscaled_inv_freq(options.rope_theta, head.dim);
  for (int i = 0; i < options.active_planes; ++i) {
    const auto at = 3 + 2 * as_index(i);
    if (at >= frequencies.size() || head.dim < 2 * (i + 2)) break;
    head.planes.push_back({frequencies[at], options.plane_radius * (1 - 0.04 * i)});
  }
  return head;
}

Metadata planted_metadata(const PlantedCaptureOptions& options, const HeadId& id) {
  if (!options.metadata) return {};
  Metadata result = {{metadata::kModel, kModelName},
                     {metadata::kLayer, std::to_string(id.layer)},
                     {metadata::kHead, std::to_string(id.head)},
                     {metadata::kKind, std::string(1, static_cast<char>(id.kind))},
                     {metadata::kStage, "post_rope"},
                     {metadata::kDtype, options.head.round_to_bf16 ? "bfloat16" : "float32"},
                     {metadata::kDevice, "cpu"},
                     {metadata::kVersion, version_string()}};
  add_sampler_metadata(result, {.type = SamplerType::uniform,
                                .base_rate = options.head.rows_per_bucket,
                                .min_bucket_size = options.head.bucket_size,
                                .max_rows = {}});
  if (id.kind == HeadKind::query)
    result[metadata::kKeyHead] = std::to_string(key_head_of(options, id));
  if (!layer_has_rope(options, id.layer)) {
    result[metadata::kRope] = metadata::kRopeNone;
    return result;
  }
  result[metadata::kRope] =
      Json{{"type", "default"}, {"theta", options.rope_theta}, {"dim", options.head.dim}}.dump();
  result[metadata::kRopeInvFreq] =
      Json(unscaled_inv_freq(options.rope_theta, options.head.dim)).dump();
  return result;
}

void write_head(const PlantedCaptureOptions& options, const HeadId& id) {
  const bool is_query = id.kind == HeadKind::query;
  const PlantedOptions head = planted_head_options(options, id);
  const std::uint64_t rows_seed =
      (head.seed << 8) + static_cast<std::uint64_t>(is_query ? 2 + id.head : 1);
  HeadRows rows = generate_planted_rows(head, id.kind, rows_seed);
  const bool full = options.full_every > 0 && (id.layer + 1) % options.full_every == 0;
  if (options.sliding_window > 0 && !full) rows.sliding_window = options.sliding_window;
  write_head_file(head_file_path(options.data_root, id), rows, planted_metadata(options, id));
}

Json planted_truth_json(const PlantedCaptureOptions& options, const HeadId& query) {
  const PlantedOptions head = planted_head_options(options, query);
  Json planes = Json::array();
  for (const auto& plane : head.planes)
    planes.push_back({{"omega", plane.omega}, {"radius", plane.radius}});
  return {{"layer", query.layer},
          {"head", query.head},
          {"k_head", key_head_of(options, query)},
          {"rope", layer_has_rope(options, query.layer)},
          {"drift_q", head.drift_q},
          {"drift_k", head.drift_k},
          {"mean_q_a", head.mean_q_a},
          {"mean_k_a", head.mean_k_a},
          {"separation", head.separation},
          {"noise", head.noise},
          {"planes", planes}};
}

}  // namespace

void write_planted_capture(const PlantedCaptureOptions& options) {
  translate_exceptions([&] {
    if (options.key_heads < 1 || options.query_heads % options.key_heads != 0)
      reject("{} query heads and {} key heads: expected a multiple", options.query_heads,
             options.key_heads);
    const auto queries = select_query_heads(options);
    std::set<HeadId> files(queries.begin(), queries.end());
    for (const auto& query : queries)
      files.insert({query.layer, key_head_of(options, query), HeadKind::key});
    const std::vector<HeadId> list(files.begin(), files.end());
    std::filesystem::create_directories(options.data_root);
    parallel_for(std::ssize(list),
                 [&](std::int64_t i) { write_head(options, list[static_cast<std::size_t>(i)]); });
    Json planted = Json::array();
    for (const auto& query : queries) planted.push_back(planted_truth_json(options, query));
    write_file(options.data_root + "/planted.json", planted.dump(1) + "\n");
    if (!options.metadata) return;
    const Json state = {{metadata::kStateModelName, kModelName},
                        {metadata::kStateModelMetadata,
                         {{metadata::kStateQueryHeads, options.query_heads},
                          {metadata::kStateKeyHeads, options.key_heads}}},
                        {metadata::kStateBucketCounts, Json::object()}};
    write_file(options.data_root + "/" + layout::kStateFile, state.dump(2) + "\n");
  });
}

}  // namespace qkscope
