// Main function of sniff-qk, the command name used by the capture protocol; equivalent to `qkscope
// capture`.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/program.h"
#include "qkscope/version.h"

int main(int argc, char** argv) {
  qkscope::cli::run_and_exit([&] {
    CLI::App app{"Capture the exact query and key vectors of attention heads", "sniff-qk"};
    app.set_version_flag("--version",
                         fmt::format("sniff-qk (qkscope {})", qkscope::version_string()));
    qkscope::cli::set_up_capture(app);
    app.footer("Example:\n  sniff-qk --config run.yaml --limit 10");
    return qkscope::cli::parse_and_run(app, argc, argv);
  });
}
