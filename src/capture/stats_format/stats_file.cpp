#include "capture/stats_format/stats_file.h"

#include <filesystem>
#include <numeric>

#include "base/core/error.h"
#include "base/core/translate_exceptions.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/output_file.h"
#include "capture/stats_format/stats_tables.h"
#include "capture/stats_format/sums_layout.h"

namespace qkscope {
namespace {

std::int64_t token_count(const Statistics& statistics) {
  return std::accumulate(statistics.lengths.begin(), statistics.lengths.end(), std::int64_t{0});
}

// Relative path and size of every file below the folder.
Json file_sizes(const std::string& folder) {
  namespace fs = std::filesystem;
  Json sizes = Json::object();
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      sizes[fs::relative(entry.path(), folder).generic_string()] = entry.file_size();
  return sizes;
}

void write_state(const std::string& folder, const Statistics& s) {
  const Json state = {{"format", sums_layout::kFormatName},
                      {"documents", s.lengths.size()},
                      {"tokens", token_count(s)},
                      {"metadata", s.metadata},
                      {"settings", settings_json(s.settings)},
                      {"configuration", parse_json(s.configuration, "configuration")},
                      {"files", file_sizes(folder)}};
  write_file(folder + "/" + stats_layout::kStateFile,
             state.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void check_files(const std::string& folder) {
  const auto file = folder + "/" + stats_layout::kStateFile;
  if (!path_exists(file))
    bad_input(
        "{}: there is no {}: no statistics, or such that are not finished; expected the "
        "folder of a finished `qkscope stats`",
        folder, stats_layout::kStateFile);
  const Json state = load_json(file);
  if (!state.is_object() || !state.contains("files") || !state["files"].is_object())
    bad_input("{}: has no list of files; it is damaged", file);
  for (const auto& [name, size] : state["files"].items()) {
    std::error_code error;
    const auto found = std::filesystem::file_size(std::filesystem::path(folder) / name, error);
    if (error) bad_input("{}/{}: is missing; make the statistics again", folder, name);
    if (size != found)
      bad_input("{}/{}: has {} bytes, but {} says {}; make the statistics again", folder, name,
                found, stats_layout::kStateFile, size.dump());
  }
}

}  // namespace

void write_statistics(const std::string& folder, const Statistics& statistics,
                      DocumentSource& documents) {
  write_sums(folder + "/" + stats_layout::kSumsFile, statistics);
  write_tables(folder, statistics, documents);
  write_state(folder, statistics);
}

Statistics read_statistics(const std::string& folder) {
  return translate_exceptions([&] {
    check_files(folder);
    Statistics statistics = read_sums(folder + "/" + stats_layout::kSumsFile);
    statistics.retrieval = read_retrieval(folder, statistics);
    return statistics;
  });
}

}  // namespace qkscope
