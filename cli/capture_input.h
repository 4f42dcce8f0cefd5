// Which capture a command analyses, and what the capture does not say of itself.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "qkscope/analysis.h"

namespace qkscope::cli {

class CaptureInput {
 public:
  // Everything but the name of the capture.
  void add_to(CLI::App& command, AnalyzeOptions& options);
  // What add_to() could not store in the options directly.
  void apply(AnalyzeOptions& options) const;

 private:
  int query_heads_ = 0;
  int key_heads_ = 0;
};

}  // namespace qkscope::cli
