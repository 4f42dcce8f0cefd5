#include <filesystem>

#include <gmock/gmock.h>

#include "base/io/output_file.h"
#include "paths.h"
#include "qkscope/tables.h"
#include "run_program.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

// Runs `qkscope heads` on the demo model.
Outcome heads(const std::string& options) {
  return run_program("qkscope heads --device cpu --quiet --model " +
                     source_path("share/demo/checkpoints/S3-4720") + " " + options);
}

TEST(Heads, PrintsTheBestHeadsOfEveryPattern) {
  const auto outcome = heads("--top 3");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const auto* part :
       {"64 heads", "random tokens written twice", "previous_token_head", "duplicate_token_head",
        "induction_head", "entropy", "loss on the second copy"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
}

TEST(Heads, RandomTextsBeginWithTheTokensThatTheTokenizerAdds) {
  const std::string model = " --csv --random-tokens 4 --device cpu --quiet --model " +
                            source_path("tests/golden/gguf_llama/model.gguf");
  const auto with = run_program("qkscope heads" + model);
  EXPECT_EQ(with.status, 0) << with.err;
  EXPECT_THAT(with.out, HasSubstr(",8,72,"));  // 8 texts of BOS and 2 x 4 tokens
  EXPECT_THAT(run_program("qkscope heads --no-bos" + model).out, HasSubstr(",8,64,"));
}

TEST(Heads, WritesTablesAndFigures) {
  const TemporaryFolder folder;
  const auto outcome = heads("--dataset " + source_path("share/demo/corpus.jsonl") +
                             " --limit 3 --max-tokens 64 --format svg --out " + folder.file("out"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("3 texts of "));
  const auto table = read_parquet_table(folder.file("out/attention.parquet"));
  EXPECT_EQ(table.rows(), 64);
  EXPECT_EQ(table.find("tokens")->integers.front(), 3 * 64);
  EXPECT_TRUE(std::filesystem::exists(folder.file("out/attention.csv")));
  for (const std::string name : {"previous", "duplicate", "induction", "sink", "entropy"})
    EXPECT_TRUE(std::filesystem::exists(folder.file("out/figures/head_map_" + name + ".svg")))
        << name;
}

TEST(Heads, ScoresAPatternFromAFile) {
  const TemporaryFolder folder;
  write_file(folder.file("self.csv"), "1,0,0\n0,1,0\n0,0,1\n");
  const auto outcome = heads("--token-ids 5,6,7 --csv --pattern " + folder.file("self.csv"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("induction_head,pattern,sink_0"));
  EXPECT_EQ(heads("--csv --pattern " + folder.file("self.csv")).status, 2);
}

TEST(Heads, BadInputIsRefused) {
  const auto pattern = heads("--pattern inducton");
  EXPECT_EQ(pattern.status, 2);
  EXPECT_THAT(pattern.err, HasSubstr("previous, duplicate or induction"));
  EXPECT_EQ(heads("--error-measure div").status, 2);
  EXPECT_EQ(heads("--text a --token-ids 1").status, 2);
}

}  // namespace
}  // namespace qkscope
