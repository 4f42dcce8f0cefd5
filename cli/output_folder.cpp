#include "cli/output_folder.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <unistd.h>

#include "cli/error.h"
#include "cli/logging.h"
#include "qkscope/experimental/store.h"
#include "qkscope/experimental/text.h"
#include "qkscope/figures.h"

namespace qkscope::cli {

namespace fs = std::filesystem;

void check_output_folder(const std::string& path) {
  if (is_store_address(path)) return check_store(path);
  std::error_code ignored;
  auto there = fs::absolute(path).lexically_normal();
  if (!there.has_filename()) there = there.parent_path();  // remove a trailing slash
  while (!fs::exists(there, ignored) && there.has_relative_path()) there = there.parent_path();
  if (!fs::is_directory(there, ignored))
    reject("{}: cannot be a folder for results: {} is a file", path, there.string());
  if (::access(there.c_str(), W_OK | X_OK) != 0)
    reject("{}: cannot write results here: {}: {}", path, there.string(), std::strerror(errno));
}

void check_local_output(const std::string& path) {
  if (is_store_address(path))
    reject("{}: this command writes local files only; copy them to the store afterwards", path);
  check_output_folder(path);
}

void TableOutput::add_to(CLI::App& command, const std::string& description) {
  command.add_option("--out", out, description + " (default: print only)");
  command.add_option("--format", formats, "Formats of the figures: some of svg,png,pdf")
      ->capture_default_str();
  command.add_flag("--no-figures", no_figures, "Tables only");
}

void TableOutput::write(const Table& table, const std::string& name) const {
  fs::create_directories(out);
  const auto path = out + "/" + name;
  table.write_csv(path + ".csv");
  table.write_parquet(path + ".parquet");
  info("{}.parquet, {}.csv: {} rows", path, path, table.rows());
}

void TableOutput::draw(bool quiet) const {
  if (no_figures) return;
  DrawOptions options;
  options.results = out;
  options.out = out + "/figures";
  options.formats = split(formats, ',');
  options.report = false;
  options.quiet = quiet;
  info("{} figures in {}", draw_figures(options).figures.size(), options.out);
}

}  // namespace qkscope::cli
