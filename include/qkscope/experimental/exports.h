// Exports statistics over every token as calibration files for other programs (kvpress, vLLM and
// others). docs/how-to/exports.md lists the file formats and the programs that read them.
#pragma once

#include <string>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

// Options of export_statistics(); each format uses only some of them.
struct ExportOptions {
  std::string statistics;  // folder of finished statistics
  std::string to;          // one of export_names()
  std::string out;         // the file or folder to write
  bool overwrite = false;  // replace existing files
  // Only for "k-ranges": "all" rows, "first" (first tokens of a document) or "body" (the rest).
  std::string set = "all";
  // Only for "q-filters": model name; kvpress expects the folder OUT/nthngdy/NAME_qfilt.
  std::string kvpress_name = {};
  // Only for "fp8-kv":
  std::string checkpoint = {};      // folder or model id; "" for the model of the statistics
  std::string strategy = "tensor";  // one scale per "tensor" or per "attn_head"
  double margin = 1.0;              // factor applied to every scale
  bool queries = false;             // write scales of queries too
};

// Returns the supported formats: "expected-attention", "q-filters", "triattention", "tria",
// "fp8-kv", "k-ranges", "duo" and "retrieval-heads".
QKSCOPE_API std::vector<std::string> export_names();

// Writes one export and returns the path of its file or folder. Throws a bad-input error when the
// format cannot represent the model.
QKSCOPE_API std::string export_statistics(const ExportOptions& options);

}  // namespace qkscope
