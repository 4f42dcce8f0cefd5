#include "analysis/figures/drawn_before.h"

#include <filesystem>

#include "base/core/error.h"
#include "base/io/checksum.h"
#include "base/io/folder.h"
#include "base/io/output_file.h"

namespace qkscope {
namespace {

std::string memory_file(const DrawOptions& options) {
  return options.out + "/.drawn.json";
}

void add_file(const std::string& path, Json& files) {
  if (path_exists(path)) files[path] = file_fingerprint(path);
}

bool all_there(const DrawOptions& options, const Drawn& drawn) {
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
  return {{"version", version_string()},
          {"formats", options.formats},
          {"report", options.report},
          {"components", options.components},
          {"head", options.head},
          {"scores", options.scores},
          {"files", files}};
}

std::optional<Drawn> drawn_before(const DrawOptions& options, const Json& inputs) {
  if (!path_exists(memory_file(options))) return std::nullopt;
  try {
    const Json memory = load_json(memory_file(options));
    if (memory.at("inputs") != inputs) return std::nullopt;
    Drawn drawn;
    drawn.figures = memory.at("figures").get<std::vector<std::string>>();
    drawn.left_out = memory.at("left_out").get<std::vector<std::pair<std::string, std::string>>>();
    drawn.of_several = memory.at("of_several").get<std::vector<std::string>>();
    drawn.report = memory.at("report").get<std::string>();
    drawn.as_before = true;
    if (all_there(options, drawn)) return drawn;
  } catch (const Error&) {  // a memory that cannot be read is none
  } catch (const Json::exception&) {
  }
  return std::nullopt;
}

void forget_drawn(const DrawOptions& options) {
  std::error_code error;
  std::filesystem::remove(memory_file(options), error);
  if (error) system_error("remove", memory_file(options), error.value());
}

void remember_drawn(const DrawOptions& options, const Json& inputs, const Drawn& drawn) {
  write_file(memory_file(options), Json{{"inputs", inputs},
                                        {"figures", drawn.figures},
                                        {"left_out", drawn.left_out},
                                        {"of_several", drawn.of_several},
                                        {"report", drawn.report}}
                                           .dump() +
                                       "\n");
}

}  // namespace qkscope
