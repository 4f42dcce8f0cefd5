#include "cli/commands.h"

namespace qkscope::cli {

void add_commands(CLI::App& app) {
  add_analyze(app);
  add_bench(app);
  add_branches(app);
  add_cache(app);
  add_capture(app);
  add_combine(app);
  add_compare(app);
  add_dataset(app);
  add_demo(app);
  add_download(app);
  add_export(app);
  add_figures(app);
  add_gc(app);
  add_generate(app);
  add_heads(app);
  add_inspect(app);
  add_merge(app);
  add_pca(app);
  add_plasticity(app);
  add_pool(app);
  add_publish(app);
  add_rotation(app);
  add_stats(app);
  add_status(app);
  add_submit(app);
  add_sweep(app);
  add_synth(app);
  add_tokenize(app);
  add_trace(app);
}

}  // namespace qkscope::cli
