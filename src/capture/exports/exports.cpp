#include "qkscope/experimental/exports.h"

#include <algorithm>
#include <optional>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "capture/exports/export_input.h"
#include "capture/format/metadata.h"

namespace qkscope {
namespace {

struct ExportFormat {
  std::string_view name;
  std::string (*write)(const ExportInput& input);
};
constexpr ExportFormat kExports[] = {{"expected-attention", export_expected_attention},
                                     {"q-filters", export_q_filters},
                                     {"triattention", export_triattention_statistics},
                                     {"tria", export_triattention_binary_statistics},
                                     {"fp8-kv", export_fp8_kv_scales},
                                     {"k-ranges", export_key_ranges},
                                     {"duo", export_duo_attention},
                                     {"retrieval-heads", export_retrieval_heads}};

// Throws a bad-input error for an option that does not apply to the chosen export.
void check_export_options(const ExportOptions& options) {
  const auto only = [&](bool given, const char* option, const char* name) {
    if (given && options.to != name)
      reject("{}: only --to {} has this option; leave it out", option, name);
  };
  only(options.set != "all", "--set", "k-ranges");
  only(!options.kvpress_name.empty(), "--kvpress-name", "q-filters");
  only(!options.checkpoint.empty(), "--checkpoint", "fp8-kv");
  only(options.strategy != "tensor", "--strategy", "fp8-kv");
  only(options.margin != 1.0, "--margin", "fp8-kv");
  only(options.queries, "--queries", "fp8-kv");
  if (options.set != "all" && options.set != "body" && options.set != "first")
    reject("--set {}: expected all, body or first", quote_text(options.set));
  if (options.strategy != "tensor" && options.strategy != "attn_head")
    reject("--strategy {}: expected tensor or attn_head", quote_text(options.strategy));
  if (!(options.margin > 0) || options.margin > 1000)
    reject("--margin {}: expected a number above 0, at most 1000", options.margin);
}

}  // namespace

ExportInput::ExportInput(const ExportOptions& options)
    : options_(options), statistics_(read_statistics(options.statistics)) {
  layers_ = statistics_.layers.empty() ? 0 : statistics_.layers.back() + 1;
  if (const auto said = metadata_text("num_layers"); !said.empty())
    layers_ = std::max(layers_, parse_integer(said, options.statistics + ": num_layers"));
}

std::string ExportInput::metadata_text(const std::string& key) const {
  return map_value_or(statistics_.metadata, key, "");
}

std::string ExportInput::model_name() const {
  return id_or_base_name(metadata_text(metadata::kModel));
}

bool ExportInput::has_rope(std::int64_t layer) const {
  const auto& all = statistics_.layers;
  const auto found = std::ranges::find(all, layer);
  return found != all.end() && statistics_.rotary[as_index(found - all.begin())] > 0;
}

HeadMoments ExportInput::moments(VectorKind kind, VectorStage stage, std::int64_t layer,
                                 const std::string& set) const {
  const auto* found = statistics_.find(kind, stage, layer);
  if (found == nullptr)
    reject(
        "{}: there are no moments of {} {} in layer {}; {} takes them: make statistics of group A "
        "without restricting kinds, stages or layers",
        options_.statistics, kind_name(kind), stage_name(stage), layer, options_.to);
  HeadMoments moments = set == "all"    ? all_rows(*found)
                        : set == "body" ? found->body
                                        : found->first;
  if (moments.n() < 2)
    reject("{}: {} such rows ({}) in its documents; {} takes at least 2", options_.statistics,
           moments.n(), set, options_.to);
  return moments;
}

void ExportInput::reject_export(const std::string& why) const {
  reject("{}: {} cannot be exported as {}: {}", options_.statistics,
         model_name().empty() ? "this model" : model_name(), options_.to, why);
}

void ExportInput::check_no_interleaved_rope() const {
  if (statistics_.interleaved)
    reject_export(
        "its RoPE turns neighbouring dimensions (2i, 2i + 1), and readers of these files only "
        "know the pairs (i, i + d/2)");
}

void ExportInput::check_no_partial_rotary() const {
  for (std::size_t i = 0; i < statistics_.layers.size(); ++i)
    if (const auto rotary = statistics_.rotary[i]; rotary > 0 && rotary != head_dim())
      reject_export(
          fmt::format("RoPE turns {} of its {} dimensions, and readers of these files take all "
                      "of them as turned",
                      rotary, head_dim()));
}

RopeParameters ExportInput::common_rope() const {
  std::optional<std::string> found;
  for (std::size_t i = 0; i < statistics_.layers.size(); ++i) {
    if (statistics_.rotary[i] == 0) continue;
    if (found && *found != statistics_.ropes[i])
      reject_export(
          "its layers have different RoPE frequencies, and these files hold one set of them");
    found = statistics_.ropes[i];
  }
  if (!found) reject_export("none of its layers has RoPE, whose pairs these files are about");
  const Json json = parse_json(*found, options_.statistics + " (rope)");
  try {
    return {json.at("type").get<std::string>(), json.at("theta").get<double>(),
            json.at("dim").get<std::int64_t>(), json.at("inv_freq").get<std::vector<double>>(),
            json.at("attention_scaling").get<double>()};
  } catch (const Json::exception& error) {
    reject("{}: RoPE in its metadata: {}; make the statistics again", options_.statistics,
           error.what());
  }
}

Matrix scatter_matrix(const HeadMoments& moments, std::int64_t head) {
  Matrix matrix(moments.dim, moments.dim);
  const double* value = moments.m2.data() + head * triangle_size(moments.dim);
  for (std::int64_t i = 0; i < moments.dim; ++i)
    for (std::int64_t j = i; j < moments.dim; ++j) matrix(i, j) = matrix(j, i) = *value++;
  return matrix;
}

void make_output_folder(const ExportOptions& options, const std::string& folder) {
  if (path_exists(folder) && !is_folder(folder))
    reject("{}: is a file; {} is a folder of files: give another --out", folder, options.to);
  if (is_folder(folder) && !entry_names(folder).empty() && !options.overwrite)
    reject("{}: is not empty; give another --out, or --overwrite", folder);
  make_folders(folder);
}

void make_folder_for_output_file(const ExportOptions& options, const std::string& file) {
  if (is_folder(file))
    reject("{}: is a folder; {} is one file: give another --out", file, options.to);
  if (path_exists(file) && !options.overwrite)
    reject("{}: is there; give another --out, or --overwrite", file);
  make_folders(parent_folder(file));
}

std::vector<std::string> export_names() {
  return to_vector(kExports, [](const ExportFormat& format) { return std::string(format.name); });
}

std::string export_statistics(const ExportOptions& options) {
  return translate_exceptions([&] {
    const auto* chosen = std::ranges::find(kExports, options.to, &ExportFormat::name);
    if (chosen == std::end(kExports))
      reject("--to {}: not an export; expected one of {}", quote_text(options.to),
             fmt::join(export_names(), ", "));
    check_export_options(options);
    return chosen->write(ExportInput(options));
  });
}

}  // namespace qkscope
