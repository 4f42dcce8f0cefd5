// Runs the analyses over every head of a capture, on all cores.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/pca.h"
#include "analysis/plasticity.h"
#include "analysis/rotation.h"
#include "core/error.h"
#include "qkscope/captures.h"
#include "results/scatter.h"

namespace qkscope {

struct AnalyzeOptions {
  std::string data_root;
  std::string label;  // the model column; empty: the capture's own name for its model
  bool pca = true;
  bool rotation = true;
  bool plasticity = true;
  PcaOptions pca_options;
  TaxonomyOptions taxonomy;
  RotationOptions rotation_options;       // inv_freq is filled per head from the capture
  PlasticityOptions plasticity_options;   // sliding_window likewise
  std::optional<HeadCounts> head_counts;  // for captures that do not say them
  std::vector<int> nope_layers;           // for captures without metadata: layers without RoPE
  std::int64_t max_tokens = 0;            // 0: every row; else a seeded sample per head file
  std::uint64_t seed = 0;
  int scatter = 96;  // rows per head and side kept for pictures; 0: none
  bool quiet = false;
};

struct HeadReport {
  HeadId query;
  int k_head = -1;
  RopeUse rope = RopeUse::unknown;
  int dim = 0;
  std::int64_t n_q = 0;
  std::int64_t n_k = 0;
  bool positions_vary = true;  // of queries and of keys
  std::optional<PcaResult> pca;
  std::optional<RotationResult> rotation;
  std::optional<PlasticityResult> plasticity;
  std::vector<ScatterPoint> scatter;
  std::string error;  // why this head has no results; empty when it has
  ErrorKind error_kind = ErrorKind::bad_input;
};

struct AnalysisTimes {  // seconds, summed over threads
  double read = 0;
  double moments = 0;
  double pca = 0;
  double rotation = 0;
  double plasticity = 0;
};

struct AnalysisRun {
  std::string label;
  Metadata capture;  // what the capture says of itself: model, commit, dtype, device ...
  std::vector<HeadReport> heads;  // by layer and head
  AnalysisTimes times;
};

// A head that cannot be analysed is reported in its HeadReport; the others go on.
AnalysisRun analyze_capture(const AnalyzeOptions& options);

}  // namespace qkscope
