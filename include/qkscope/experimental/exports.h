// Calibration files for other programs, from statistics over every token. docs/exports.md tells who
// reads them and what is in them.
#pragma once

#include <string>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

struct ExportOptions {
  std::string statistics;  // a finished folder
  std::string to;          // one of export_names()
  std::string out;         // the file or folder to write
  bool overwrite = false;  // files that are there are replaced
  // k-ranges: "all", "body" (without the first tokens of a document) or "first".
  std::string set = "all";
  // q-filters: the folder is OUT/nthngdy/NAME_qfilt, as kvpress looks for it from OUT.
  std::string kvpress_name = {};
  // fp8-kv
  std::string checkpoint = {};      // folder or model id; "": the model of the statistics
  std::string strategy = "tensor";  // a scale for each "tensor", or for each "attn_head"
  double margin = 1.0;              // multiplies the scales
  bool queries = false;             // also scales of queries
};

// "expected-attention", "q-filters", "triattention", "tria", "fp8-kv", "k-ranges", "duo",
// "retrieval-heads".
QKSCOPE_API std::vector<std::string> export_names();

// Returns what was written: the file, or the folder. What the reader of the file cannot represent
// is bad input that names it.
QKSCOPE_API std::string export_statistics(const ExportOptions& options);

}  // namespace qkscope
