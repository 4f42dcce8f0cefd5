// Options of commands that run models over a dataset: capture, stats, sweep, submit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/common_options.h"
#include "qkscope/capture.h"
#include "qkscope/experimental/run_advice.h"

namespace qkscope::cli {

// Builds the command line of another process. Options without a value are left out.
class ArgumentList {
 public:
  explicit ArgumentList(std::vector<std::string> words) : words_(std::move(words)) {}

  void add(const char* option, const std::string& value) {
    if (!value.empty()) words_.insert(words_.end(), {option, value});
  }
  void add(const char* option, std::int64_t value) {
    if (value > 0) add(option, std::to_string(value));
  }
  void add(const char* option, const std::vector<std::string>& values) {
    for (const auto& value : values) add(option, value);
  }
  void add_flag(const char* option, bool given) {
    if (given) words_.emplace_back(option);
  }

  const std::vector<std::string>& words() const { return words_; }

 private:
  std::vector<std::string> words_;
};

// Options that set how and where a model runs; unset options keep the value of the configuration
// file.
struct ComputeArguments {
  std::string device;  // one device, "all", or a list separated by commas
  std::string dtype;
  std::string device_memory;
  std::int64_t batch_tokens = 0;
  bool deterministic = false;

  void add_to(CLI::App& command);
  void append_arguments(ArgumentList& list) const;
  ComputeOptions options() const;
};

struct RunArguments {
  CommonOptions common;
  ComputeArguments compute;
  std::string config;
  std::vector<std::string> overrides;
  std::string shard;
  std::string ids;
  std::int64_t limit = 0;
  bool overwrite = false;
  bool dry_run = false;
  bool json = false;

  void add_to(CLI::App& command);
  // Unlike add_to(), adds only --set, --limit, --ids and the compute options.
  void add_run_to(CLI::App& command);
  // Returns --config and the options of add_run_to() as command-line arguments for another process
  // in the same working directory.
  std::vector<std::string> run_arguments() const;

  Shard chosen_shard() const;
  // Applies --limit and --ids, which override the configuration file.
  void apply_to(DatasetConfig& dataset) const;
  // Whether to print text: with --json, standard output contains only the JSON object.
  bool prints_text() const { return !common.quiet && !json; }
};

// Prints the estimated run time of a dry run on one line, then logs its warnings.
void print_advice(const RunAdvice& advice);

// Parses --shard: "i/n" is part i of n equal parts of a dataset or a sweep; "auto" reads i and n
// from environment variables of the scheduler.
Shard parse_shard(const std::string& text);

// Formats the truncation or chunking of texts: "3 cut at 4,096", or "in chunks of 4,096, 2 shorter
// than 256 dropped".
std::string format_cuts(const TokenizerConfig& tokenizer, std::int64_t truncated,
                        std::int64_t dropped_chunks);

// Formats the devices for output: "cuda:0", "cuda:0 and 3 more".
std::string format_devices(Device first, std::size_t count);

}  // namespace qkscope::cli
