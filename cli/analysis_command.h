// What `analyze`, `pca`, `rotation` and `plasticity` share: options and the run itself.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/common_options.h"
#include "qkscope/analysis.h"

namespace qkscope::cli {

class AnalysisCommand {
 public:
  void add_input_options(CLI::App& command);
  void add_pca_options(CLI::App& command);
  void add_rotation_options(CLI::App& command);
  void add_planes_option(CLI::App& command);
  void add_plasticity_options(CLI::App& command);

  AnalyzeOptions& options() { return options_; }

  // Analyses, writes the results, prints a short summary. Throws after everything is written when
  // heads failed, so that the exit code says so.
  void run();

 private:
  CommonOptions common_;
  AnalyzeOptions options_;
  std::string out_;
  std::vector<std::string> planes_of_;  // "3.11"
  int query_heads_ = 0;
  int key_heads_ = 0;
};

}  // namespace qkscope::cli
