// What `analyze`, `pca`, `rotation` and `plasticity` share: options and the run itself.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/capture_input.h"
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
  void add_statistics_options(CLI::App& command);

  AnalyzeOptions& options() { return options_; }

  // Analyses, writes the results, prints a short summary. Throws after everything is written when
  // heads failed, so that the exit code says so.
  void run();

 private:
  void read_profile_bins();

  CommonOptions common_;
  AnalyzeOptions options_;
  std::string out_;
  CaptureInput capture_;
  std::string layers_;
  std::string heads_;
  bool overwrite_ = false;
  bool no_errors_ = false;
  std::string profile_bins_;
  std::string planes_of_;
};

}  // namespace qkscope::cli
