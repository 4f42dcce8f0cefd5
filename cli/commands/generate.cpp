// qkscope generate: continues a prompt token by token.
#include "qkscope/experimental/generate.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/model_options.h"
#include "cli/stop_signal.h"
#include "cli/token_input.h"

namespace qkscope::cli {
namespace {

struct GenerateArguments {
  CommonOptions common;
  ModelArguments model;
  TokenInput prompt;
  GenerateOptions generate;
  std::vector<std::string> stops;
  bool ignore_end = false;
  bool echo = false;
  bool ids = false;
};

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Replaces the escapes "\n" and "\t" in --stop with a line feed and a tab.
std::string unescape(std::string text) {
  for (const auto& [escape, character] :
       {std::pair<std::string_view, char>{"\\n", '\n'}, {"\\t", '\t'}})
    for (auto at = text.find(escape); at != std::string::npos; at = text.find(escape, at + 1))
      text.replace(at, escape.size(), 1, character);
  return text;
}

void print_and_flush(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void run(GenerateArguments& options) {
  const auto folder = options.model.fetch(options.common.quiet);
  const auto prompt = options.prompt.read(folder);
  std::optional<Tokenizer> tokenizer;
  if (has_tokenizer(folder))
    tokenizer = Tokenizer::load(folder);
  else if (!options.ids)
    reject("{}: there is no tokenizer.json to write text with; --ids prints token ids", folder);
  auto& generate = options.generate;
  generate.tokenizer = tokenizer ? &*tokenizer : nullptr;
  generate.stops_at_end = !options.ignore_end;
  for (const auto& stop : options.stops) generate.stop_texts.push_back(unescape(stop));
  const auto model = options.model.load(folder, std::ssize(prompt));
  if (options.echo && !options.ids) print_and_flush(tokenizer->decode(prompt, true));

  const auto& stop_requested = watch_stop_signals();
  const auto start = Clock::now();
  auto first = start;
  std::int64_t count = 0;
  bool line_is_open = false;
  generate.on_token = [&](const GeneratedToken& token) {
    if (count++ == 0) first = Clock::now();
    if (options.ids)
      print_and_flush(fmt::format("{}{}", count > 1 ? " " : "", token.id));
    else
      print_and_flush(token.text);
    if (!token.text.empty()) line_is_open = token.text.back() != '\n';
    return !stop_requested;
  };
  const std::vector<std::vector<std::int32_t>> prompts = {prompt};
  qkscope::generate(model, prompts, generate);
  if (options.ids || line_is_open) print_and_flush("\n");
  if (stop_requested) return end_by_stop_signal();
  const auto rest = seconds_between(first, Clock::now());
  if (!options.common.quiet)
    fmt::print(stderr, "prompt: {} tokens in {:.2f} s; then {} tokens{}\n", prompt.size(),
               seconds_between(start, first), count,
               count > 1 ? fmt::format(", {:.1f} tokens/s", static_cast<double>(count - 1) / rest)
                         : std::string());
}

void add_sampling(CLI::App& command, GenerateArguments& options) {
  auto& generate = options.generate;
  start_section(command, "Sampling");
  command.add_option("--max-new-tokens", generate.max_new_tokens, "Maximum number of new tokens")
      ->check(integer_between(1, std::int64_t{1} << 40))
      ->capture_default_str();
  command
      .add_option("--temperature", generate.temperature,
                  "Divisor of the logits before sampling; 0 takes the most likely token")
      ->check(number_between(0.0, 1e6))
      ->capture_default_str();
  command
      .add_option("--top-k", generate.top_k,
                  "Sample from the k most likely tokens; 0: all (with --temperature)")
      ->check(not_negative())
      ->capture_default_str();
  command
      .add_option(
          "--top-p", generate.top_p,
          "Sample from the fewest tokens whose probabilities sum to this (with --temperature)")
      ->capture_default_str();
  command.add_option("--seed", generate.seed, "Seed of the sampling")->capture_default_str();
  command.add_option("--stop", options.stops,
                     "End before this text (\\n: end of line); repeatable");
  command.add_option("--stop-token", generate.stop_tokens, "End after this token id; repeatable");
  command.add_flag("--ignore-end", options.ignore_end,
                   "Continue after end-of-text tokens (eos_token_id of the checkpoint)");
}

}  // namespace

void add_generate(CLI::App& app) {
  auto [command, options] = add_command<GenerateArguments>(
      app, "generate", "Continue a prompt and print the text as it is generated", run);
  options->model.add_to(*command);
  options->prompt.add_to(*command);
  add_sampling(*command, *options);
  start_section(*command, "Output");
  command->add_flag("--echo", options->echo, "Print the prompt first");
  command->add_flag("--ids", options->ids, "Print token ids instead of text");
}

}  // namespace qkscope::cli
