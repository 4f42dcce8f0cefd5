// The commands of the program. Each is one file in commands/ and adds itself, its options and its
// callback to the app.
#pragma once

#include <CLI/CLI.hpp>

namespace qkscope::cli {

void add_commands(CLI::App& app);

void add_analyze(CLI::App& app);
void add_bench(CLI::App& app);
void add_branches(CLI::App& app);
void add_cache(CLI::App& app);
void add_capture(CLI::App& app);
void add_combine(CLI::App& app);
void add_compare(CLI::App& app);
void add_dataset(CLI::App& app);
void add_demo(CLI::App& app);
void add_download(CLI::App& app);
void add_export(CLI::App& app);
void add_figures(CLI::App& app);
void add_gc(CLI::App& app);
void add_generate(CLI::App& app);
void add_heads(CLI::App& app);
void add_inspect(CLI::App& app);
void add_merge(CLI::App& app);
void add_pca(CLI::App& app);
void add_plasticity(CLI::App& app);
void add_pool(CLI::App& app);
void add_publish(CLI::App& app);
void add_rotation(CLI::App& app);
void add_stats(CLI::App& app);
void add_status(CLI::App& app);
void add_submit(CLI::App& app);
void add_sweep(CLI::App& app);
void add_synth(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_trace(CLI::App& app);

// The options and the action of `qkscope capture`, which sniff-qk is too.
void set_up_capture(CLI::App& command);

}  // namespace qkscope::cli
