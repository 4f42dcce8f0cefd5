#include <exception>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "core/error.h"
#include "core/log.h"
#include "core/version.h"

namespace {

constexpr int kBadInput = 2;

int run(int argc, char** argv) {
  CLI::App app{"What the attention heads of language models do with position", "qkscope"};
  app.set_version_flag("--version", fmt::format("qkscope {}", qkscope::kVersion));
  app.require_subcommand(1);
  app.failure_message([](const CLI::App* at, const CLI::Error& error) {
    return fmt::format("error: {}\n'{} --help' lists the options.\n", error.what(), at->get_name());
  });
  qkscope::cli::add_commands(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadInput;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  qkscope::set_up_logging(qkscope::Verbosity::normal);
  try {
    return run(argc, argv);
  } catch (const qkscope::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
