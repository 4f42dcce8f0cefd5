// What holds for every command.
#include <gmock/gmock.h>

#include "qkscope/cpu.h"
#include "qkscope/version.h"
#include "run_program.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

TEST(Cli, VersionAndHelp) {
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

TEST(Cli, QkscopeCpuNamesTheTarget) {
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

}  // namespace
}  // namespace qkscope
