// Help, the manual page, shell completion and messages about wrong options, which are all made from
// one table.
#include <algorithm>
#include <array>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "run_program.h"

namespace qkscope {
namespace {

using testing::HasSubstr;
using testing::Not;

// Returns every command with its options as the bash script lists them: "hub download".
std::vector<std::string> commands() {
  const auto script = run_program("qkscope completion bash").out;
  const std::regex row("\n    '([a-z ]+)'\\)\n      options='");
  std::vector<std::string> found;
  for (std::sregex_iterator at(script.begin(), script.end(), row), end; at != end; ++at)
    found.push_back((*at)[1]);
  return found;
}

TEST(Help, OfEveryCommandIsPlainAndHasAnExample) {
  const auto all = commands();
  EXPECT_GE(all.size(), 30U);  // 26 commands, and those inside hub and submit
  // Types and validators of the parser: "INT:POSITIVE", "INT in [1 - 9]", "TEXT:{a,b}".
  const std::regex internals("INT|BOOLEAN|FLOAT|in \\[|:\\{|Needs: | REQUIRED");
  for (const auto& command : all) {
    const auto help = run_program("qkscope " + command + " --help");
    EXPECT_EQ(help.status, 0) << command;
    EXPECT_THAT(help.out, HasSubstr("\nUsage: qkscope " + command + " ")) << command;
    EXPECT_THAT(help.out,
                HasSubstr("\nExample:\n  qkscope " + command.substr(0, command.find(' '))))
        << command;
    EXPECT_FALSE(std::regex_search(help.out, internals)) << help.out;
    EXPECT_THAT(help.out, Not(HasSubstr("(default: )"))) << command;
  }
}

// Every option of every command that takes a number refuses NaN, octal numbers and overflow, before
// anything is done.
TEST(Help, NumbersOfEveryOptionAreChecked) {
  std::set<std::string> seen;
  int tried = 0;
  for (const auto& command : commands()) {
    const auto help = run_program("qkscope " + command + " --help").out;
    const std::regex row("\n  (?:-[a-z], )?(--[a-z-]+) (N|NUMBER|N,N,\\.\\.\\.)(?= |\n)");
    for (std::sregex_iterator at(help.begin(), help.end(), row), end; at != end; ++at) {
      const std::string option = (*at)[1];
      const bool first = seen.insert(option).second;
      if (!first && option == "--threads") continue;  // an option of every command
      const bool real = (*at)[2] == "NUMBER";
      for (const auto* value : real ? std::array{"nan", "inf", "1e400"}
                                    : std::array{"nan", "010", "99999999999999999999999"}) {
        const auto outcome = run_program(fmt::format("qkscope {} {} {}", command, option, value));
        EXPECT_EQ(outcome.status, 2) << command << " " << option << " " << value;
        EXPECT_THAT(outcome.err, HasSubstr(fmt::format("{}: found '{}'", option, value)))
            << command;
        ++tried;
        if (!first) break;
      }
    }
  }
  EXPECT_GT(tried, 100);
  for (const auto* line : {"capture --shards 2147483648", "submit sweep x --shards 2147483648",
                           "sweep x --shards 2147483648", "capture --limit 0x10"})
    EXPECT_THAT(run_program(std::string("qkscope ") + line).err,
                HasSubstr("expected a whole number"))
        << line;
  EXPECT_THAT(run_program("qkscope dataset " + source_path("share/demo/corpus.jsonl") +
                          " --shard 0/2147483648")
                  .err,
              HasSubstr("--shard 0/2147483648: "));
}

TEST(Help, GroupsOptionsAndGivesDefaults) {
  const auto help = run_program("qkscope generate --help").out;
  for (const auto* part : {"\nUsage: qkscope generate --model MODEL [OPTIONS]\n",
                           "\nInput, one of these:\n", "\nModel:\n",
                           ("\nSampling:\n  --max-new-tokens N      Maximum number of new tokens "
                            "(default: 128)\n"),
                           "\nCommon:\n  -h, --help"})
    EXPECT_THAT(help, HasSubstr(part));
  EXPECT_LT(help.find("\nSampling:"), help.find("\nCommon:"));
}

TEST(Help, OfSniffQkIsThatOfCapture) {
  const auto help = run_program("sniff-qk --help").out;
  EXPECT_THAT(help, HasSubstr("\nUsage: sniff-qk --config FILE [OPTIONS]\n"));
  EXPECT_THAT(help, HasSubstr("\nExample:\n  sniff-qk --config run.yaml"));
  EXPECT_THAT(run_program("sniff-qk --config x y").err,
              HasSubstr("'y' was not expected: the program takes options only\n"
                        "'sniff-qk --help' lists the options.\n"));
}

struct WrongLine {
  std::string line;
  std::string message;
};

TEST(WrongOptions, NameTheNearestOneAndTheHelp) {
  for (const auto& [line, message] : std::vector<WrongLine>{
           {"generate --model x --text a --max-new-tokns 5",
            "generate: there is no option --max-new-tokns; did you mean --max-new-tokens?\n"
            "'qkscope generate --help' lists the options.\n"},
           {"generate 5 --textt", "there is no option --textt; did you mean --text?\n"},
           {"generate --max=5", "there is no option --max; did you mean --max-new-tokens?\n"},
           {"generate --max-tokens 5", "--max-tokens is called --max-new-tokens now\n"},
           {"generate --prompt x", "--prompt is called --text now\n"},
           {"--foo inspect x", "there is no option --foo\n'qkscope --help' lists the commands.\n"},
           {"hub dwnload x",
            "'dwnload' is not a command of hub; did you mean 'download'?\n"
            "'qkscope hub --help' lists the commands.\n"},
           {"hub", "qkscope hub needs a command\n"},
           {"inspect a b", "'b' was not expected: inspect takes MODEL and options\n"},
           {"inspect", "MODEL is missing: Checkpoint folder"},
           {"generate --model", "--model: the value is missing; expected MODEL\n"},
           {"generate --model x", "expected one of --text, --text-file, --token-ids\n"},
           {"generate --model x --text a --text-file b", "expected only one of --text,"},
           {"generate --model x --text a --seed y",
            "--seed: found 'y'; expected a whole number from 0 on"},
           {"generate --model x --model y --text a", "--model: given 2 times; expected once\n"},
           {"hub download x --only weigts", "--only: found 'weigts'; expected config\n"},
           {"synth x --head-counts 1", "--head-counts: found 1 values; expected N,N\n"},
           {"bench --model x --repeats 1.5",
            "--repeats: found '1.5'; expected a whole number from 1 to 1000\n"},
           {"completion ksh", "shell: found 'ksh'; expected bash, zsh, fish\n"}}) {
    const auto outcome = run_program("qkscope " + line);
    EXPECT_EQ(outcome.status, 2) << line;
    EXPECT_TRUE(outcome.err.starts_with("error: ")) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << line;
    EXPECT_EQ(outcome.out, "") << line;
  }
}

// Runs the completion function of bash on a command line and returns its replies, one per line. The
// line "compopt ..." stands for completion by bash itself.
std::string complete_in_bash(const std::string& words) {
  const auto done = run_program(
      "bash -c 'source <(qkscope completion bash); compopt() { echo \"compopt $*\"; }; "
      "COMP_WORDS=(" +
      words +
      "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _qkscope; printf \"%s\\n\" \"${COMPREPLY[@]}\"'");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.err, "") << words;
  return done.out;
}

TEST(Completion, OfBashKnowsCommandsOptionsAndValues) {
  EXPECT_EQ(complete_in_bash("qkscope gen"), "generate\n");
  EXPECT_EQ(complete_in_bash("qkscope hub down"), "download\n");
  EXPECT_EQ(complete_in_bash("qkscope generate --max-n"), "--max-new-tokens\n");
  EXPECT_EQ(complete_in_bash("qkscope heads --error-measure \"\""), "mul\nabs\n");
  EXPECT_EQ(complete_in_bash("qkscope heads --error-measure = a"), "abs\n");
  EXPECT_EQ(complete_in_bash("qkscope capture --config x"), "compopt -o default\n\n");
  EXPECT_EQ(complete_in_bash("qkscope analyze x"), "compopt -o dirnames\n\n");
  EXPECT_EQ(complete_in_bash("qkscope generate --seed \"\""), "\n");
  // A value that is also the name of a command chooses no command.
  EXPECT_EQ(complete_in_bash("qkscope analyze x --out demo --only p"), "pca\nplasticity\n");
}

TEST(Completion, ScriptsOfAllShellsNameEveryCommandAndLongOption) {
  EXPECT_EQ(run_program("bash -c 'qkscope completion bash | bash -n'").status, 0);
  const auto zsh = run_program("qkscope completion zsh").out;
  const auto fish = run_program("qkscope completion fish").out;
  const auto manual = run_program("qkscope manual").out;
  EXPECT_TRUE(zsh.starts_with("#compdef qkscope\n"));
  for (const auto& command : commands()) {
    EXPECT_THAT(fish, HasSubstr(fmt::format("'{}'", command)));
    auto function = "_qkscope_" + command;
    std::ranges::replace(function, ' ', '_');
    EXPECT_THAT(zsh, HasSubstr(function + "() {"));
  }
  EXPECT_THAT(zsh, HasSubstr("'--max-new-tokens=[Maximum number of new tokens]:N: '"));
  EXPECT_THAT(fish,
              HasSubstr("\"__qkscope_at 'generate'\" -l max-new-tokens -x -d 'Maximum number"));
  EXPECT_THAT(manual, HasSubstr(".SS \"qkscope hub download\"\n"));
  EXPECT_THAT(manual, HasSubstr("\\fB\\-\\-max\\-new\\-tokens\\fR \\fIN\\fR\n"));
}

}  // namespace
}  // namespace qkscope
