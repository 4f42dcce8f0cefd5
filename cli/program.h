// Code shared by the main functions of qkscope and sniff-qk: command-line parsing, one-line error
// messages and exit codes.
#pragma once

#include <functional>
#include <string>

#include <CLI/CLI.hpp>

namespace qkscope::cli {

// Parses the command line and runs the chosen command. Returns the exit code: 2 for arguments that
// cannot be parsed.
int parse_and_run(CLI::App& app, int argc, char** argv);

// Calls `program` and ends the process with the exit code that it returns.
[[noreturn]] void run_and_exit(const std::function<int()>& program);

}  // namespace qkscope::cli
