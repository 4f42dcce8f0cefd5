// A sweep: the same capture and analysis over a list of checkpoints, read from one YAML file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/capture_config.h"
#include "qkscope/analysis.h"
#include "qkscope/study.h"

namespace qkscope {

struct SweepRun {
  std::string label;        // also the name of its folders
  std::string phase;        // of the training, "" where there is none
  std::string family = "";  // of models, for figures; "": from the model's name
  std::int64_t order = 0;
  CaptureConfig capture;  // output.data_root is chosen by the sweep's folder
};

struct SweepConfig {
  std::string name;
  std::vector<SweepRun> runs;  // by order
  AnalyzeOptions analysis;     // the same for all; data_root and label are set per run
};

// Bad input names the file, the line and what was expected.
SweepConfig read_sweep(const SweepSource& source);

}  // namespace qkscope
