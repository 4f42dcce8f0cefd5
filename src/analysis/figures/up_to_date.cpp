#include "analysis/figures/up_to_date.h"

#include <filesystem>

#include "base/core/error.h"
#include "base/io/checksum.h"
#include "base/io/folder.h"
#include "base/io/output_file.h"

namespace qkscope {
namespace {

std::string record_file(const DrawOptions& options) {
  return options.out + "/.drawn.json";
}

void add_file(const std::string& path, Json& files) {
  if (path_exists(path)) files[path] = file_fingerprint(path);
}

bool all_files_exist(const DrawOptions& options, const Drawn& drawn) {
  for (const auto& name : drawn.figures) {
    std::vector<std::string> endings = options.formats;
    endings.insert(endings.end(), {"csv", "gp", "txt"});
    for (const auto& ending : endings)
      if (!path_exists(options.out + "/" + name + "." + ending)) return false;
  }
  return drawn.report.empty() || path_exists(drawn.report);
}

}  // namespace

Json drawing_inputs(const DrawOptions& options, const Results& results) {
  Json files = Json::object();
  for (const auto& name : names_in(options.results))
    if (name.ends_with(".parquet")) add_file(options.results + "/" + name, files);
  for (const char* name : {"runs.json", "summary.json", "timings.json"})
    add_file(options.results + "/" + name, files);
  for (const auto& run : results.runs())
    if (const Json folder = run.facts.value("results", Json()); folder.is_string())
      for (const char* name : {"summary.json", "timings.json"})
        add_file(options.results + "/" + folder.get<std::string>() + "/" + name, files);
  if (!options.scores.empty()) add_file(options.scores, files);
  return {{"version", version_string()},    {"formats", options.formats},
          {"report", options.report},       {"components", options.components},
          {"head", options.head},           {"scores", options.scores},
          {"attention", options.attention}, {"files", files}};
}

std::optional<Drawn> up_to_date(const DrawOptions& options, const Json& inputs) {
  if (!path_exists(record_file(options))) return std::nullopt;
  try {
    const Json record = load_json(record_file(options));
    if (record.at("inputs") != inputs) return std::nullopt;
    Drawn drawn;
    drawn.figures = record.at("figures").get<std::vector<std::string>>();
    drawn.left_out = record.at("left_out").get<std::vector<std::pair<std::string, std::string>>>();
    drawn.of_several = record.at("of_several").get<std::vector<std::string>>();
    drawn.report = record.at("report").get<std::string>();
    drawn.up_to_date = true;
    if (all_files_exist(options, drawn)) return drawn;
  } catch (const Error&) {  // an unreadable record counts as missing
  } catch (const Json::exception&) {
  }
  return std::nullopt;
}

void delete_drawing_record(const DrawOptions& options) {
  std::error_code error;
  std::filesystem::remove(record_file(options), error);
  if (error) system_error("remove", record_file(options), error.value());
}

void write_drawing_record(const DrawOptions& options, const Json& inputs, const Drawn& drawn) {
  write_file(record_file(options), Json{{"inputs", inputs},
                                        {"figures", drawn.figures},
                                        {"left_out", drawn.left_out},
                                        {"of_several", drawn.of_several},
                                        {"report", drawn.report}}
                                           .dump() +
                                       "\n");
}

}  // namespace qkscope
