#include "qkscope/experimental/exports.h"

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/core/translate_exceptions.h"
#include "capture/exports/export_input.h"

namespace qkscope {
namespace {

struct Export {
  const char* name;
  std::string (*write)(const ExportInput& input);
};
constexpr Export kExports[] = {{"expected-attention", export_expected_attention},
                               {"q-filters", export_q_filters},
                               {"triattention", export_triattention},
                               {"tria", export_tria},
                               {"fp8-kv", export_fp8_kv},
                               {"k-ranges", export_key_ranges},
                               {"duo", export_duo},
                               {"retrieval-heads", export_retrieval_heads}};

const Export& find_export(const std::string& name) {
  for (const auto& each : kExports)
    if (name == each.name) return each;
  bad_input("--to {}: not an export; expected one of {}", in_quotes(name),
            fmt::join(export_names(), ", "));
}

// Throws bad input for an option that the chosen export does not have.
void check_options(const ExportOptions& options) {
  const auto only = [&](bool given, const char* option, const char* name) {
    if (given && options.to != name)
      bad_input("{}: only --to {} has this option; leave it out", option, name);
  };
  only(options.set != "all", "--set", "k-ranges");
  only(!options.kvpress_name.empty(), "--kvpress-name", "q-filters");
  only(!options.checkpoint.empty(), "--checkpoint", "fp8-kv");
  only(options.strategy != "tensor", "--strategy", "fp8-kv");
  only(options.margin != 1.0, "--margin", "fp8-kv");
  only(options.queries, "--queries", "fp8-kv");
  if (options.set != "all" && options.set != "body" && options.set != "first")
    bad_input("--set {}: expected all, body or first", in_quotes(options.set));
  if (options.strategy != "tensor" && options.strategy != "attn_head")
    bad_input("--strategy {}: expected tensor or attn_head", in_quotes(options.strategy));
  if (!(options.margin > 0) || options.margin > 1000)
    bad_input("--margin {}: expected a number above 0, at most 1000", options.margin);
}

}  // namespace

std::vector<std::string> export_names() {
  std::vector<std::string> names;
  for (const auto& each : kExports) names.emplace_back(each.name);
  return names;
}

std::string export_statistics(const ExportOptions& options) {
  return translate_exceptions([&] {
    const Export& chosen = find_export(options.to);
    check_options(options);
    return chosen.write(ExportInput(options));
  });
}

}  // namespace qkscope
