// Generates the dataset card and the state file of a capture.
#include <algorithm>
#include <bit>
#include <iterator>
#include <set>

#include <fmt/ranges.h>

#include "base/core/text.h"
#include "capture/format/layout.h"
#include "capture/format/manifest.h"
#include "capture/format/metadata.h"

namespace qkscope {
namespace {

using StringAppender = std::back_insert_iterator<std::string>;

std::size_t head_count(const Manifest& manifest, HeadKind kind) {
  std::size_t count = 0;
  for (const auto& group : manifest.groups)
    if (group.kind == kind) count += group.heads.size();
  return count;
}

std::string describe_sampled_positions(const SamplerOptions& sampler) {
  const auto size = sampler.min_bucket_size;
  if (sampler.type == SamplerType::all) return fmt::format("all; bucket = position / {}", size);
  if (sampler.type == SamplerType::uniform)
    return fmt::format("each position with probability min(1, {} / {}); bucket = position / {}",
                       sampler.base_rate, size, size);
  return fmt::format(
      "each position with probability min(1, {} / 2^bucket); bucket = floor(log2(position + 1)), "
      "at least ceil(log2({}))",
      sampler.base_rate, size);
}

void write_card_table(StringAppender out, const Manifest& manifest, const CaptureSummary& summary) {
  const auto& details = manifest.model_metadata;
  std::int64_t rows = 0;
  for (const auto& [bucket, count] : summary.buckets) rows += count;
  const auto fact = [&](const std::string& name, const std::string& value) {
    fmt::format_to(out, "| {} | {} |\n", name, value);
  };
  fmt::format_to(out, "| | |\n| --- | --- |\n");
  fact("model", fmt::format("{}, revision {}", id_or_base_name(manifest.model_name),
                            manifest.metadata.at(metadata::kRevision)));
  if (const auto commit = manifest.metadata.find(metadata::kCommit);
      commit != manifest.metadata.end())
    fact("commit", commit->second);
  fact("texts", fmt::format("{}, split {}", id_or_base_name(details.value("source_dataset", "")),
                            details.value("dataset_split", "")));
  fact("examples", format_count(summary.examples));
  fact("rows", format_count(rows));
  if (summary.non_finite > 0) fact("rows with NaN or infinity", format_count(summary.non_finite));
  fact("query heads", std::to_string(head_count(manifest, HeadKind::query)));
  fact("key heads", std::to_string(head_count(manifest, HeadKind::key)));
  std::set<std::int64_t> widths;
  for (const auto& group : manifest.groups) widths.insert(manifest.head_dim_of(group));
  fact("head dimension", fmt::format("{}", fmt::join(widths, ", ")));
  fact("stage", manifest.metadata.at(metadata::kStage));
  fact("positions kept", describe_sampled_positions(manifest.sampler));
  fact("computed in", fmt::format("{} on {}", manifest.metadata.at(metadata::kDtype),
                                  manifest.metadata.at(metadata::kDevice)));
  fact("made by", fmt::format("qkscope {}, configuration {}",
                              manifest.metadata.at(metadata::kVersion), manifest.config_hash));
}

}  // namespace

std::string dataset_card(const Manifest& manifest, const CaptureSummary& summary) {
  std::vector<std::string> names;  // one dataset configuration per head file
  for (const auto& group : manifest.groups)
    for (const auto head : group.heads)
      names.push_back(head_folder_name(manifest.head_id(group, head)));
  std::ranges::sort(names);
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out,
                 "---\npretty_name: Query and key vectors\ntags:\n- attention\n"
                 "- interpretability\nconfigs:\n");
  for (const auto& name : names)
    fmt::format_to(out, "- config_name: {0}\n  data_files:\n  - split: train\n    path: {0}/{1}\n",
                   name, layout::kHeadFile);
  fmt::format_to(out,
                 "---\n\n# Query and key vectors of {}\n\n"
                 "The query and key vectors of single attention heads, taken {} rotary "
                 "position embedding at sampled token positions.\n\n",
                 id_or_base_name(manifest.model_name),
                 manifest.metadata.at(metadata::kStage) == "pre_rope" ? "before" : "after");
  write_card_table(out, manifest, summary);
  fmt::format_to(
      out,
      "\n## Columns\n\n| column | type | |\n| --- | --- | --- |\n"
      "| bucket | int32 | which stretch of the context the position is in |\n"
      "| example_id | int32 | low 32 bits of example_key, which texts may share; see `{}` |\n"
      "| position | int32 | token position, from 0 |\n"
      "| vector | list of float32 | the vector that enters the attention product |\n"
      "| sliding_window | int32 | the layer's window; null on full attention |\n{}"
      "| example_key | int64 | the example's key: tells every text from the others |\n"
      "\n## Rows per bucket, all heads\n\n| bucket | rows |\n| --- | --- |\n",
      layout::kExamplesFile,
      manifest.token_strings ? "| token_str | string | the token at the position |\n" : "");
  for (const auto& [bucket, rows] : summary.buckets)
    fmt::format_to(out, "| {} | {} |\n", bucket, format_count(rows));
  fmt::format_to(out, "\n## Head sampling\n\n| | |\n| --- | --- |\n");
  for (const auto& [key, value] : manifest.model_metadata.items())
    if (key.starts_with("head_sampling_"))
      fmt::format_to(out, "| {} | {} |\n", key,
                     value.is_string() ? value.get<std::string>() : value.dump());
  fmt::format_to(out,
                 "\n## Loading\n\n```python\nfrom datasets import load_dataset\n\n"
                 "head = load_dataset(\"{}\", \"{}\"{}, split=\"train\")\n```\n\n"
                 "A configuration is a layer, a head and q or k: `{}` is layer {}.\n",
                 manifest.repo.empty() ? "path/to/this/folder" : manifest.repo, names.front(),
                 manifest.branch.empty() ? "" : fmt::format(", revision=\"{}\"", manifest.branch),
                 names.front(), manifest.groups.front().layer);
  return text;
}

Json capture_state_json(const Manifest& manifest, const CaptureSummary& summary) {
  Json buckets = Json::object();
  for (const auto& [bucket, rows] : summary.buckets) buckets[std::to_string(bucket)] = rows;
  // Details of the model and the run, under the keys that qk-sniffer uses. Manifest::model_metadata
  // does not contain the publishing destination, because it may change until the capture is
  // finished.
  Json details = manifest.model_metadata;
  if (!details.contains("dataset_name")) details["dataset_name"] = "";
  details[metadata::kStateAttentionScope] =
      details.value(metadata::kStateFullAttentionOnly, 0) == 1 ? "full_only" : "all_attention";
  details[metadata::kStateDatasetRepo] = manifest.repo;
  details[metadata::kStateDatasetBranch] = manifest.branch;
  const auto type = manifest.sampler.type;
  const auto size = manifest.sampler.min_bucket_size;
  const bool log = type == SamplerType::log_uniform;
  details[metadata::kStateSampling] = log ? "log" : sampler_type_name(type);
  if (log)
    details[metadata::kStateLeastBucket] = std::bit_ceil(static_cast<std::uint64_t>(size));
  else
    details[metadata::kStateBucketSize] = size;
  Json state = {{metadata::kStateModelName, manifest.model_name},
                {metadata::kStateModelMetadata, details},
                {metadata::kStateBucketCounts, buckets},
                {metadata::kStateConfiguration, manifest.identity},
                {metadata::kStateConfigurationHash, manifest.config_hash},
                {metadata::kStateFiles, to_json(summary.files)}};
  if (summary.non_finite > 0) state[metadata::kStateNonFinite] = summary.non_finite;
  if (!manifest.repo.empty())
    state[metadata::kStatePublish] = {
        {"repo", manifest.repo}, {"branch", manifest.branch}, {"private", manifest.private_repo}};
  return state;
}

}  // namespace qkscope
