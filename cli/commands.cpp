#include "cli/commands.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

struct Command {
  const char* name;
  const char* group;
  void (*add)(CLI::App& app);
  const char* example;
};

// Commands in the order of `qkscope --help`, which shows the example of the first command of each
// group.
constexpr Command kCommands[] = {
    {"inspect", "Model", add_inspect, "qkscope inspect Qwen/Qwen3-0.6B"},
    {"generate", "Model", add_generate,
     "qkscope generate --model Qwen/Qwen3-0.6B --text 'Once upon' --max-new-tokens 50"},
    {"heads", "Model", add_heads, "qkscope heads --model Qwen/Qwen3-0.6B --top 5"},
    {"attribute", "Model", add_attribute,
     "qkscope attribute --model Qwen/Qwen3-0.6B --text-file a.txt --head 18.6 --out attribution"},
    {"trace", "Model", add_trace,
     "qkscope trace --model Qwen/Qwen3-0.6B --text 'Once upon' --hooks 'blocks.*.attn.hook_rot_q' "
     "--out trace.safetensors"},
    {"view", "Model", add_view, "qkscope view --model Qwen/Qwen3-0.6B --text-file book.txt"},
    {"tokenize", "Model", add_tokenize,
     "qkscope tokenize --tokenizer Qwen/Qwen3-0.6B --text 'Once upon' --tokens"},
    {"capture", "Capture", add_capture, "qkscope capture --config run.yaml --limit 10"},
    {"stats", "Capture", add_stats, "qkscope stats --config run.yaml --groups A,B"},
    {"merge", "Capture", add_merge, "qkscope merge data"},
    {"dataset", "Capture", add_dataset, "qkscope dataset texts.jsonl --tokenizer Qwen/Qwen3-0.6B"},
    {"analyze", "Analyse", add_analyze, "qkscope analyze data --out results --only pca,rotation"},
    {"figures", "Analyse", add_figures, "qkscope figures results --out figures"},
    {"report", "Analyse", add_report, "qkscope report results/a --compare results/b"},
    {"compare", "Analyse", add_compare, "qkscope compare results/smollm3 --published smollm3"},
    {"pool", "Analyse", add_pool, "qkscope pool results/a results/b --out pooled"},
    {"export", "Analyse", add_export, "qkscope export stats --to q-filters --out filters"},
    {"sweep", "Study", add_sweep, "qkscope sweep study.yaml --out results"},
    {"submit", "Study", add_submit,
     "qkscope submit sweep study.yaml --shards 8 --slurm gpus=1 --slurm time=2:00:00"},
    {"combine", "Study", add_combine, "qkscope combine results/a results/b --out tables"},
    {"demo", "Study", add_demo, "qkscope demo --out results"},
    {"hub", "Store", add_hub, "qkscope hub download Qwen/Qwen3-0.6B"},
    {"check", "Store", add_check, "qkscope check data"},
    {"gc", "Store", add_gc, "qkscope gc s3://bucket/path --older-than 2d"},
    {"bench", "Tools", add_bench, "qkscope bench --model Qwen/Qwen3-0.6B --batch 512"},
    {"synth", "Tools", add_synth, "qkscope synth data --layers 2 --head-counts 4,2"},
    {"completion", "Tools", add_completion,
     "qkscope completion bash > ~/.local/share/bash-completion/completions/qkscope"},
};

// Examples for the subcommands of `hub` and `submit`.
struct SubcommandExample {
  const char* command;
  const char* subcommand;
  const char* example;
};
constexpr SubcommandExample kSubcommandExamples[] = {
    {"hub", "download", "qkscope hub download Qwen/Qwen3-0.6B --only config"},
    {"hub", "branches", "qkscope hub branches HuggingFaceTB/SmolLM3-3B-checkpoints --every 4"},
    {"hub", "cache", "qkscope hub cache --json"},
    {"hub", "remove", "qkscope hub remove Qwen/Qwen3-0.6B --only weights"},
    {"hub", "publish", "qkscope hub publish data --repo org/name --branch qwen3"},
    {"submit", "sweep",
     "qkscope submit sweep study.yaml --shards 8 --slurm gpus=1 --slurm time=2:00:00"},
    {"submit", "capture", "qkscope submit capture run.yaml --shards 4 --slurm gpus=1"},
};

void add_example(CLI::App& command, const std::string& example) {
  const auto footer = command.get_footer();
  command.footer(fmt::format("{}{}Example:\n  {}", footer, footer.empty() ? "" : "\n\n", example));
}

// A removed command and its replacement.
struct OldCommand {
  std::string_view name;
  std::string_view now;     // the new command
  std::string_view option;  // appended to the command line
};
constexpr OldCommand kOldCommands[] = {
    {"pca", "analyze", " --only pca"},
    {"rotation", "analyze", " --only rotation"},
    {"plasticity", "analyze", " --only plasticity"},
    {"download", "hub download", ""},
    {"branches", "hub branches", ""},
    {"cache remove", "hub remove", ""},
    {"cache", "hub cache", ""},
    {"publish", "hub publish", ""},
    {"status", "sweep", " --status"},
};

}  // namespace

void add_commands(CLI::App& app) {
  std::string examples = "Examples:";
  std::string_view group;
  for (const auto& command : kCommands) {
    command.add(app);
    auto* added = app.get_subcommand(command.name);
    added->group(command.group);
    add_example(*added, command.example);
    if (group != command.group) examples += fmt::format("\n  {}", command.example);
    group = command.group;
  }
  for (const auto& [command, subcommand, example] : kSubcommandExamples)
    add_example(*app.get_subcommand(command)->get_subcommand(subcommand), example);
  app.footer(examples);
}

std::string replacement_of_old_command(const std::vector<std::string>& words) {
  for (const auto& old : kOldCommands) {
    const auto names = split(std::string(old.name), ' ');
    if (words.size() < names.size() || !std::equal(names.begin(), names.end(), words.begin()))
      continue;
    auto line = fmt::format("qkscope {}", old.now);
    for (auto i = names.size(); i < words.size(); ++i) line += " " + quote_for_shell(words[i]);
    return line.append(old.option);
  }
  return "";
}

}  // namespace qkscope::cli
