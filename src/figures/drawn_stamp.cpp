#include "figures/drawn_stamp.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/blake2b.h"
#include "core/error.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/mapped_file.h"
#include "io/output_file.h"
#include "qkscope/version.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

std::string stamp_file(const DrawOptions& options) {
  return options.out + "/.drawn.json";
}

// Folders of a sweep that no figure shows.
bool is_passed_over(const fs::path& folder, const fs::path& out) {
  const auto name = folder.filename();
  if (name == "captures" || name == ".locks" || name == "published") return true;
  std::error_code error;
  return fs::equivalent(folder, out, error) && !error;
}

// One number for the content of all files of the results but their timings.
std::string hash_of_results(const DrawOptions& options) {
  std::vector<fs::path> files;
  for (auto entry = fs::recursive_directory_iterator(options.results);
       entry != fs::recursive_directory_iterator(); ++entry) {
    if (entry->is_directory() && is_passed_over(entry->path(), options.out))
      entry.disable_recursion_pending();
    if (entry->is_regular_file() && entry->path().filename() != "timings.json")
      files.push_back(entry->path());
  }
  std::sort(files.begin(), files.end());
  std::string listing;
  for (const auto& file : files)
    listing += fmt::format("{} {:016x}\n", file.lexically_relative(options.results).string(),
                           blake2b_64(MappedFile(file.string()).text()));
  return fmt::format("{:016x}", blake2b_64(listing));
}

Json inputs_of(const DrawOptions& options) {
  return {{"version", version_string()},
          {"only", options.only},
          {"formats", options.formats},
          {"report", options.report},
          {"results", hash_of_results(options)}};
}

bool all_there(const DrawOptions& options, const Drawn& drawn) {
  auto endings = options.formats;
  endings.insert(endings.end(), {"csv", "gp", "txt"});
  for (const auto& name : drawn.figures)
    for (const auto& ending : endings)
      if (!path_exists(fmt::format("{}/{}.{}", options.out, name, ending))) return false;
  return drawn.report.empty() || path_exists(drawn.report);
}

}  // namespace

std::optional<Drawn> drawn_before(const DrawOptions& options) {
  if (!path_exists(stamp_file(options)) || !is_folder(options.results)) return {};
  try {
    const Json stamp = load_json(stamp_file(options));
    if (stamp.at("inputs") != inputs_of(options)) return {};
    Drawn drawn;
    drawn.figures = stamp.at("figures").get<std::vector<std::string>>();
    drawn.left_out = stamp.at("left_out").get<std::vector<std::pair<std::string, std::string>>>();
    if (stamp.at("report").get<bool>()) drawn.report = options.out + "/report.html";
    drawn.drawn_before = true;
    if (all_there(options, drawn)) return drawn;
  } catch (const Error&) {  // a stamp that cannot be read says nothing: they are drawn
  } catch (const Json::exception&) {
  } catch (const fs::filesystem_error&) {
  }
  return {};
}

void forget_drawn(const DrawOptions& options) {
  fs::remove(stamp_file(options));
}

void remember_drawn(const DrawOptions& options, const Drawn& drawn) {
  const Json stamp = {{"inputs", inputs_of(options)},
                      {"figures", drawn.figures},
                      {"left_out", drawn.left_out},
                      {"report", !drawn.report.empty()}};
  write_file(stamp_file(options), stamp.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace qkscope
