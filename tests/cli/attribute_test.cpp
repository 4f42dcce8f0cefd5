#include <filesystem>

#include <gmock/gmock.h>

#include "base/io/output_file.h"
#include "paths.h"
#include "qkscope/tables.h"
#include "run_program.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

// Runs `qkscope attribute` on the demo model.
Outcome attribute(const std::string& options) {
  return run_program("qkscope attribute --device cpu --quiet --model " +
                     source_path("share/demo/checkpoints/S3-4720") + " " + options);
}

TEST(Attribute, WritesTablesAndFigures) {
  const TemporaryFolder folder;
  write_file(folder.file("a.txt"), "Entry 1, day 5. A letter came for Orn. Entry 2, day 6.");
  const auto out = folder.file("out");
  const auto outcome = attribute("--text-file " + folder.file("a.txt") +
                                 " --head 2.4 --keys top:3 --effect --format svg --out " + out);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("others · others"));
  const auto table = read_parquet_table(out + "/attribution.parquet");
  EXPECT_EQ(table.rows(), 3 * 21);  // --top 20 and others
  EXPECT_EQ(table.find("text")->texts.front(), "a.txt");
  for (const std::string name : {"attribution_components", "pairs", "distance_curve", "effect"})
    for (const std::string ending : {".parquet", ".csv"})
      EXPECT_TRUE(std::filesystem::exists(out + "/" + name + ending)) << name;
  for (const std::string name :
       {"attribution_matrix", "attribution_bars", "score_by_frequency", "score_by_distance"})
    EXPECT_TRUE(std::filesystem::exists(out + "/figures/" + name + ".svg")) << name;
}

TEST(Attribute, FollowsCompositionOverCheckpoints) {
  const TemporaryFolder folder;
  const auto out = folder.file("out");
  const auto outcome = attribute("--dataset " + source_path("share/demo/corpus.jsonl") +
                                 " --limit 2 --max-tokens 48 --head 3.1 --sample 20 --format svg "
                                 "--also " +
                                 source_path("share/demo/checkpoints/S1-40") + " --out " + out);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto table = read_parquet_table(out + "/composition_components.parquet");
  EXPECT_EQ(table.find("model")->texts.front(), "S3-4720");
  EXPECT_EQ(table.find("model")->texts.back(), "S1-40");
  EXPECT_EQ(table.find("order")->integers.back(), 1);
  EXPECT_EQ(read_parquet_table(out + "/composition.parquet").rows(), 2 * 21);
  for (const std::string name : {"composition_graph", "composition_over_runs"})
    EXPECT_TRUE(std::filesystem::exists(out + "/figures/" + name + ".svg")) << name;
}

TEST(Attribute, BadInputIsRefused) {
  const auto refuses = [](const std::string& options, const std::string& message) {
    const auto outcome = attribute(options);
    EXPECT_EQ(outcome.status, 2) << options;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << options;
  };
  refuses("--text a --head 99.0", "there is no head 99.0");
  refuses("--text a --head three", "LAYER.HEAD");
  refuses("--text a --head 3.1 --query 100", "--query: 100 is outside the text");
  refuses("--text 'a b c d' --head 3.1 --query 0 --keys 1", "key 1 comes after query 0");
  refuses("--text a --head 3.1 --top none", "--top");
  refuses("--text a --head 3.1 --features none.safetensors", "none.safetensors");
  refuses("--text a --head 3.1 --also b", "--also");
  refuses("--text a", "--head");
}

}  // namespace
}  // namespace qkscope
