#include "cli/capture_input.h"

#include "cli/error.h"

namespace qkscope::cli {

void CaptureInput::add_to(CLI::App& command, AnalyzeOptions& options) {
  command.add_option("--label", options.label,
                     "Name in the model column (default: the capture's own)");
  command.add_option("--model", options.model,
                     "Model of a capture that does not say its head counts and RoPE: folder, id or "
                     "ID@REVISION; only its config.json is read");
  command
      .add_option("--q-heads", query_heads_,
                  "Query heads per layer of the model, for captures that do not say")
      ->check(CLI::Range(1, 1 << 20));
  command.add_option("--k-heads", key_heads_, "Key heads per layer of the model, likewise")
      ->check(CLI::Range(1, 1 << 20));
  command
      .add_option("--nope-layers", options.nope_layers,
                  "Layers without RoPE, for captures that do not say")
      ->delimiter(',');
}

void CaptureInput::apply(AnalyzeOptions& options) const {
  if ((query_heads_ > 0) != (key_heads_ > 0))
    bad_input("--q-heads and --k-heads belong together; give both");
  if (query_heads_ > 0) options.head_counts = HeadCounts{query_heads_, key_heads_};
}

}  // namespace qkscope::cli
