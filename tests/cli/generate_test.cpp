#include <gmock/gmock.h>

#include "paths.h"
#include "run_program.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

Outcome generate(const std::string& options) {
  return run_program("qkscope generate --device cpu --model " +
                     source_path("share/demo/checkpoints/S3-4720") + " " + options);
}

TEST(Generate, PrintsTextAndSpeed) {
  const auto outcome = generate("--text 'Entry 1, day 5.' --max-new-tokens 12 --ignore-end");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_FALSE(outcome.out.empty());
  EXPECT_TRUE(outcome.out.ends_with("\n"));
  EXPECT_THAT(outcome.err, HasSubstr("tokens/s"));
  const auto quiet = generate("--text 'Entry 1, day 5.' --max-new-tokens 12 --ignore-end --quiet");
  EXPECT_EQ(quiet.out, outcome.out);
  EXPECT_EQ(quiet.err, "");
  const auto echoed =
      generate("--text 'Entry 1, day 5.' --max-new-tokens 12 --ignore-end --echo --quiet");
  EXPECT_EQ(echoed.out, "Entry 1, day 5." + outcome.out);
}

TEST(Generate, WritesTextWithTheTokenizerOfAGgufFile) {
  const auto outcome = run_program(
      "qkscope generate --device cpu --quiet --text a --max-new-tokens 3 --ignore-end --model " +
      source_path("tests/golden/gguf_llama/model.gguf"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_FALSE(outcome.out.empty());
}

TEST(Generate, EqualSeedsGiveEqualText) {
  const std::string options =
      "--text 'Entry 1' --max-new-tokens 20 --temperature 1.5 --top-k 50 --top-p 0.95 --ignore-end "
      "--quiet ";
  const auto first = generate(options + "--seed 1");
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(generate(options + "--seed 1").out, first.out);
  EXPECT_NE(generate(options + "--seed 2").out, first.out);
}

TEST(Generate, StopsBeforeAStopText) {
  const auto whole =
      generate("--text 'Entry 1, day 5.' --max-new-tokens 30 --ignore-end --quiet").out;
  const auto stop = whole.substr(whole.size() / 2, 3);
  const auto stopped = generate(
      "--text 'Entry 1, day 5.' --max-new-tokens 30 --ignore-end --quiet --stop '" + stop + "'");
  EXPECT_EQ(stopped.status, 0) << stopped.err;
  EXPECT_EQ(stopped.out, whole.substr(0, whole.find(stop)) + "\n");
}

TEST(Generate, PrintsIdsWithoutATokenizer) {
  const std::string model = " --device cpu --model " + source_path("tests/golden/llama_gqa");
  const auto ids = run_program(
      "qkscope generate --token-ids 1,2,3 --max-new-tokens 3 --ids --quiet --ignore-end" + model);
  EXPECT_EQ(ids.status, 0) << ids.err;
  EXPECT_EQ(std::count(ids.out.begin(), ids.out.end(), ' '), 2);
  const auto text = run_program("qkscope generate --token-ids 1,2,3" + model);
  EXPECT_EQ(text.status, 2);
  EXPECT_THAT(text.err, HasSubstr("--ids prints token ids"));
}

// Errors are one line; errors of options also name --help.
TEST(Generate, BadInputIsRefused) {
  for (const std::string options :
       {"--text x --max-new-tokens 0", "--text x --temperature -1", "--text x --top-p 0",
        "--text x --top-p 1.5", "--text x --top-k -2", "--text x --seed y", "",
        "--text x --token-ids 1", "--token-ids 99999999", "--text x --stop ''",
        "--text-file /no/such/file"}) {
    const auto outcome = generate(options);
    EXPECT_EQ(outcome.status, 2) << options;
    EXPECT_TRUE(outcome.err.starts_with("error: ")) << options << ": " << outcome.err;
    EXPECT_LE(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace qkscope
