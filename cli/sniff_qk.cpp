// sniff-qk: the documented command of the capture protocol, the same as `qkscope capture`.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/program.h"
#include "qkscope/version.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app{"Capture the exact query and key vectors of attention heads", "sniff-qk"};
  app.set_version_flag("--version",
                       fmt::format("sniff-qk (qkscope {})", qkscope::version_string()));
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("error: {}\n'sniff-qk --help' lists the options.\n", error.what());
  });
  qkscope::cli::set_up_capture(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : qkscope::cli::kBadInput;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  qkscope::cli::guarded([&] { return run(argc, argv); });
}
