// Behaviour that all commands share.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/io/output_file.h"
#include "qkscope/experimental/cpu.h"
#include "qkscope/version.h"
#include "run_program.h"
#include "sanitized.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

TEST(Cli, VersionAndHelpArePrinted) {
  EXPECT_EQ(run_program("qkscope --version").out,
            std::string("qkscope ") + version_string() + " (" + cpu_target() + ")\n");
  const auto help = run_program("qkscope --help");
  EXPECT_EQ(help.status, 0);
  for (const auto* command : {"dataset", "inspect", "trace", "tokenize"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
    const auto own = run_program(std::string("qkscope ") + command + " --help");
    EXPECT_EQ(own.status, 0) << command;
    EXPECT_THAT(own.out, HasSubstr("--threads")) << command;
  }
}

TEST(Cli, QkscopeCpuSelectsTheCpuTarget) {
  for (const auto& target : cpu_targets())
    EXPECT_THAT(run_program("QKSCOPE_CPU=" + target + " qkscope --version").out,
                HasSubstr("(" + target + ")"));
  for (const auto* command : {"--version", "inspect x", "tokenize --tokenizer x --text y"}) {
    const auto outcome = run_program(std::string("QKSCOPE_CPU=mmx qkscope ") + command);
    EXPECT_EQ(outcome.status, 2) << command;
    EXPECT_THAT(outcome.err, HasSubstr("QKSCOPE_CPU: 'mmx' is not a target"));
    EXPECT_THAT(outcome.err, HasSubstr(cpu_targets().back()));
  }
}

TEST(Cli, WrongCommandsAndOptionsAreBadInput) {
  const auto none = run_program("qkscope");
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("a command is needed"));
  const auto unknown = run_program("qkscope inspct x");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("'inspct' is not a command"));
  EXPECT_THAT(unknown.err, HasSubstr("did you mean 'inspect'?"));
  const auto option = run_program("qkscope inspect x --no-such-option");
  EXPECT_EQ(option.status, 2);
  EXPECT_THAT(option.err, HasSubstr("--no-such-option"));
  EXPECT_EQ(run_program("qkscope inspect x --threads 0").status, 2);
}

TEST(Cli, NumbersOutOfRangeAreNamed) {
  const auto zero = run_program("qkscope analyze folder --out results --pairs 0");
  EXPECT_EQ(zero.status, 2);
  EXPECT_THAT(zero.err,
              HasSubstr("--pairs: found '0'; expected a whole number from 1 to 1048576\n"));
  const auto negative = run_program("qkscope generate --model x --top-k -1");
  EXPECT_EQ(negative.status, 2);
  EXPECT_THAT(negative.err,
              HasSubstr("--top-k: found '-1'; expected a whole number from 0 to 1099511627776\n"));
}

TEST(Cli, HelpShowsGroupsAndAnExampleOfEach) {
  const auto help = run_program("qkscope --help").out;
  for (const auto* group : {"Model:", "Capture:", "Analyse:", "Study:", "Store:", "Tools:"})
    EXPECT_THAT(help, HasSubstr(std::string("\n") + group + "\n"));
  EXPECT_THAT(help, HasSubstr("\nExamples:\n  qkscope inspect "));
  EXPECT_THAT(run_program("qkscope merge --help").out, HasSubstr("Example:\n  qkscope merge data"));
}

TEST(Cli, RemovedCommandsNameTheirReplacement) {
  for (const auto& [old_line, new_line] : std::vector<std::pair<std::string, std::string>>{
           {"pca data --out results", "analyze data --out results --only pca"},
           {"rotation data", "analyze data --only rotation"},
           {"plasticity data", "analyze data --only plasticity"},
           {"download org/name", "hub download org/name"},
           {"branches org/name --match 'a b*'", "hub branches org/name --match 'a b*'"},
           {"cache --json", "hub cache --json"},
           {"cache remove org/name", "hub remove org/name"},
           {"publish data", "hub publish data"},
           {"status sweep --watch 5", "sweep sweep --watch 5 --status"}}) {
    const auto outcome = run_program("qkscope " + old_line);
    EXPECT_EQ(outcome.status, 2) << old_line;
    EXPECT_THAT(outcome.err, HasSubstr("type\n  qkscope " + new_line + "\n")) << old_line;
  }
}

TEST(Cli, DocumentedAnalysisOptionsAreThoseOfTheTable) {
  const auto page = run_program("qkscope options");
  EXPECT_EQ(page.status, 0);
  EXPECT_EQ(page.out, MappedFile(source_path("docs/reference/analysis-options.md")).text())
      << "'qkscope options > docs/reference/analysis-options.md' updates the page";
}

TEST(Cli, UnwritableStandardOutputIsAFailure) {
  for (const auto* command : {"qkscope --version", "qkscope --help", "qkscope hub cache --json"}) {
    const auto full = run_program(std::string(command) + " >/dev/full");
    EXPECT_EQ(full.status, 1) << command;
    EXPECT_THAT(full.err, HasSubstr("standard output: cannot write")) << command;
    const auto closed = run_program(std::string(command) + " >&-");
    EXPECT_EQ(closed.status, 1) << command;
    EXPECT_THAT(closed.err, HasSubstr("standard output: cannot write")) << command;
  }
}

TEST(Cli, UnwritableStandardErrorKeepsTheExitCode) {
  EXPECT_EQ(run_program("qkscope inspect /no/such/folder 2>/dev/full").status, 2);
  EXPECT_EQ(run_program("qkscope inspect /no/such/folder 2>&-").status, 2);
  EXPECT_EQ(run_program("qkscope no-such-command 2>/dev/full").status, 2);
}

// A file opened for writing must not get the descriptor of a closed standard stream.
TEST(Cli, ClosedStreamsDoNotLeakIntoFiles) {
  const TemporaryFolder folder;
  const auto out = folder.file("capture");
  const auto result = run_program("qkscope synth " + out + " --examples 2 0>&- 1>&- 2>&-");
  EXPECT_EQ(result.status, 0);
  const auto grep = run_program("grep -rlE 'heads|examples:|info|error' --include=* " + out +
                                " | grep -v json | grep -v README");
  EXPECT_EQ(grep.out, "");
}

TEST(Cli, ControlCharactersInMessagesAreEscaped) {
  const auto result = run_program("qkscope inspect $(printf '/no/\\033[2Jsuch')");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("/no/\\x1b[2Jsuch"));
}

// Nothing writes to the named pipe: opening it would block.
TEST(Cli, NamedPipesAreRefused) {
  const TemporaryFolder folder;
  for (const auto* name : {"tokenizer.json", "texts.jsonl", "texts.parquet", "run.yaml"})
    run_program("mkfifo " + folder.file(name));
  for (const auto& command :
       {"tokenize --tokenizer " + folder.file("tokenizer.json") + " --text a",
        "dataset " + folder.file("texts.jsonl"), "dataset " + folder.file("texts.parquet"),
        "capture --config " + folder.file("run.yaml")}) {
    const auto result = run_program("timeout 10 qkscope " + command);
    EXPECT_EQ(result.status, 2) << command;
    EXPECT_THAT(result.err, HasSubstr("not a regular file")) << command;
  }
}

TEST(Cli, UnwritableOutputFoldersAreRefusedBeforeComputing) {
  const TemporaryFolder folder;
  write_file(folder.file("file"), "");
  const auto result =
      run_program("qkscope analyze /no/such/capture --out " + folder.file("file/x"));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("cannot be a folder for results"));
}

// Any failed allocation ends the program with a message.
TEST(Cli, OutOfMemoryIsReported) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory does not fit into the limit";
  const TemporaryFolder folder;
  write_file(folder.file("config.json"),
             MappedFile(source_path("tests/golden/llama_mha/config.json")).text());
  std::string body = R"({"a":[)";
  for (int i = 0; i < 1'300'000; ++i) body += "[],";
  body += "[]]}";
  std::string file;
  for (unsigned i = 0; i < 8; ++i) file += static_cast<char>(body.size() >> 8 * i & 0xff);
  write_file(folder.file("model.safetensors"), file + body);
  const auto run = [](int megabytes, const std::string& arguments) {
    // Many threads: their stacks take most of the memory, and some cannot be started.
    return run_program(
        fmt::format("ulimit -v {}; qkscope {} --threads 16", megabytes * 1000, arguments));
  };
  int least = 60;  // megabytes; the program needs more to start, depending on its libraries
  for (bool starts = false; !starts && least < 4000; ++least) {
    const auto version = run_program(fmt::format("ulimit -v {}; qkscope --version", least * 1000));
    starts = version.status == 0;
    // Nothing may crash after the work is done.
    EXPECT_TRUE(starts || version.out.empty()) << least << " MB: " << version.status;
  }
  bool ended = false;
  for (int megabytes = least; megabytes <= least + 200; megabytes += 10) {
    const auto result = run(megabytes, "inspect " + folder.path());
    EXPECT_LE(result.status, 2) << megabytes << " MB: " << result.err;
    EXPECT_THAT(result.err, HasSubstr("error: ")) << megabytes << " MB";
    ended |= result.err.find("out of memory") != std::string::npos;
  }
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace qkscope
