#include "capture/exports/export_input.h"

#include <algorithm>
#include <optional>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "capture/format/metadata.h"

namespace qkscope {
namespace {

ExportRope parse_rope(const std::string& text, const std::string& where) {
  const Json json = parse_json(text, where + " (rope)");
  try {
    return {json.at("type").get<std::string>(), json.at("theta").get<double>(),
            json.at("dim").get<std::int64_t>(), json.at("inv_freq").get<std::vector<double>>(),
            json.at("attention_scaling").get<double>()};
  } catch (const Json::exception& error) {
    bad_input("{}: RoPE in its metadata: {}; make the statistics again", where, error.what());
  }
}

}  // namespace

ExportInput::ExportInput(const ExportOptions& options)
    : options_(options), statistics_(read_statistics(options.statistics)) {
  layers_ = statistics_.layers.empty() ? 0 : statistics_.layers.back() + 1;
  if (const auto said = text("num_layers"); !said.empty())
    layers_ = std::max(layers_, parse_integer(said, options.statistics + ": num_layers"));
}

std::string ExportInput::text(const std::string& key) const {
  const auto found = statistics_.metadata.find(key);
  return found == statistics_.metadata.end() ? "" : found->second;
}

std::string ExportInput::model_name() const {
  return short_name(text(metadata::kModel));
}

bool ExportInput::runs_on_text(std::int64_t layer) const {
  const auto& all = statistics_.layers;
  return std::find(all.begin(), all.end(), layer) != all.end();
}

bool ExportInput::rotated(std::int64_t layer) const {
  const auto& all = statistics_.layers;
  const auto found = std::find(all.begin(), all.end(), layer);
  return found != all.end() && statistics_.rotary[at(found - all.begin())] > 0;
}

HeadMoments ExportInput::moments(VectorKind kind, VectorStage stage, std::int64_t layer,
                                 const std::string& set) const {
  const auto* found = statistics_.find(kind, stage, layer);
  if (found == nullptr)
    bad_input(
        "{}: there are no moments of {} {} in layer {}; {} takes them: make statistics of group A "
        "without restricting kinds, stages or layers",
        options_.statistics, kind_name(kind), stage_name(stage), layer, options_.to);
  HeadMoments moments = set == "all"    ? all_rows(*found)
                        : set == "body" ? found->body
                                        : found->first;
  if (moments.n() < 2)
    bad_input("{}: {} such rows ({}) in its documents; {} takes at least 2", options_.statistics,
              moments.n(), set, options_.to);
  return moments;
}

void ExportInput::refuse(const std::string& why) const {
  bad_input("{}: {} cannot be exported as {}: {}", options_.statistics,
            model_name().empty() ? "this model" : model_name(), options_.to, why);
}

void ExportInput::refuse_interleaved() const {
  if (statistics_.interleaved)
    refuse(
        "its RoPE turns neighbouring dimensions (2i, 2i + 1), and readers of these files only "
        "know the pairs (i, i + d/2)");
}

void ExportInput::refuse_partial_rotary() const {
  for (std::size_t i = 0; i < statistics_.layers.size(); ++i)
    if (const auto rotary = statistics_.rotary[i]; rotary > 0 && rotary != dim())
      refuse(
          fmt::format("RoPE turns {} of its {} dimensions, and readers of these files take all "
                      "of them as turned",
                      rotary, dim()));
}

ExportRope ExportInput::one_rope() const {
  std::optional<std::string> found;
  for (std::size_t i = 0; i < statistics_.layers.size(); ++i) {
    if (statistics_.rotary[i] == 0) continue;
    if (found && *found != statistics_.ropes[i])
      refuse("its layers have different RoPE frequencies, and these files hold one set of them");
    found = statistics_.ropes[i];
  }
  if (!found) refuse("none of its layers has RoPE, whose pairs these files are about");
  return parse_rope(*found, options_.statistics);
}

Matrix scatter_of(const HeadMoments& moments, std::int64_t head) {
  Matrix matrix(moments.dim, moments.dim);
  const double* value = moments.m2.data() + head * triangle_size(moments.dim);
  for (std::int64_t i = 0; i < moments.dim; ++i)
    for (std::int64_t j = i; j < moments.dim; ++j) matrix(i, j) = matrix(j, i) = *value++;
  return matrix;
}

void prepare_folder(const ExportOptions& options, const std::string& folder) {
  if (path_exists(folder) && !is_folder(folder))
    bad_input("{}: is a file; {} is a folder of files: give another --out", folder, options.to);
  if (is_folder(folder) && !names_in(folder).empty() && !options.overwrite)
    bad_input("{}: is not empty; give another --out, or --overwrite", folder);
  make_folders(folder);
}

void prepare_file(const ExportOptions& options, const std::string& file) {
  if (is_folder(file))
    bad_input("{}: is a folder; {} is one file: give another --out", file, options.to);
  if (path_exists(file) && !options.overwrite)
    bad_input("{}: is there; give another --out, or --overwrite", file);
  make_folders(parent_folder(file));
}

}  // namespace qkscope
