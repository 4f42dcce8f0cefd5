// The program on bad and odd captures: what it says, how it exits, what it leaves.
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "paths.h"
#include "qkscope/analysis.h"
#include "qkscope/captures.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Ended {
  int code = 0;
  std::string output;  // both streams
};

Ended run(const std::string& arguments) {
  const std::string command = program_folder() + "/qkscope " + arguments + " 2>&1";
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  Ended ended;
  std::array<char, 4096> buffer;
  while (const auto n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    ended.output.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

// A capture of four query heads (two layers, the second without RoPE) and two key heads.
class BadData : public ::testing::Test {
 protected:
  BadData() {
    PlantedCaptureOptions options;
    options.data_root = root();
    options.layers = 2;
    options.query_heads = 2;
    options.key_heads = 1;
    options.nope_every = 2;
    options.active_planes = 1;
    options.head.dim = 6;
    options.head.examples = 6;
    options.head.context = 256;
    options.head.bucket_size = 32;
    options.head.drift_q = options.head.drift_k = 0.01;
    write_planted_capture(options);
  }

  std::string root() const { return folder_.file("capture"); }
  std::string results() const { return folder_.file("results"); }
  std::string file(int layer, int head, HeadKind kind) const {
    return head_file_path(root(), {layer, head, kind});
  }
  // The file's rows, changed and written back with its metadata.
  template <typename Change>
  void change(const std::string& path, const Change& body) const {
    HeadFile content = read_head_file(path);
    body(content.rows);
    write_head_file(path, content.rows, content.metadata);
  }
  Ended analyze(const std::string& more = "") const {
    return run("analyze " + root() + " --out " + results() + " " + more);
  }
  Json summary() const { return load_json(results() + "/summary.json"); }
  int lines(const std::string& name) const {
    const MappedFile csv(results() + "/" + name);
    return static_cast<int>(std::count(csv.text().begin(), csv.text().end(), '\n'));
  }
  // One head fails with these words, the other three are there.
  void expect_one_failed(const Ended& ended, const std::string& words) const {
    EXPECT_EQ(ended.code, 2) << ended.output;
    EXPECT_THAT(ended.output, AllOf(HasSubstr(words), HasSubstr("1 of 4 heads")));
    EXPECT_EQ(lines("rotated.csv"), 1 + 3);
    EXPECT_EQ(summary()["counts"]["failed"], 1);
    EXPECT_EQ(summary()["counts"]["analysed"], 3);
    EXPECT_THAT(summary()["counts"]["failures"][0]["error"].get<std::string>(), HasSubstr(words));
  }

  TemporaryFolder folder_;
};

TEST_F(BadData, AGoodCaptureWorks) {
  const Ended ended = analyze();
  EXPECT_EQ(ended.code, 0) << ended.output;
  for (const char* name : {"qk", "taxonomy", "taxonomy_counts", "rotated", "complement",
                           "head_metrics", "head_bucket_plasticity", "head_profile", "profile_bins",
                           "pair_heatmap", "head_component_weights", "geometry"}) {
    EXPECT_GT(lines(std::string(name) + ".csv"), 1) << name;
    EXPECT_TRUE(std::filesystem::exists(results() + "/" + name + ".parquet")) << name;
  }
  const Json found = summary();
  EXPECT_EQ(found["counts"]["rope"], 2);
  EXPECT_EQ(found["counts"]["nope"], 2);
  for (const char* part : {"pca", "rotation", "plasticity", "geometry"})
    for (const char* group : {"all", "rope", "nope"})
      EXPECT_TRUE(found[part].contains(group)) << part << " " << group;
  EXPECT_TRUE(found["taxonomy"]["nope"].contains("mixed"));
  EXPECT_EQ(found["undefined"]["complement.csv"]["nearest_inv_freq"]["rope_frequencies_unknown"],
            4);
}

TEST_F(BadData, ResultsDoNotDependOnTheNumberOfThreads) {
  ASSERT_EQ(analyze("--threads 1").code, 0);
  std::map<std::string, std::string> before;
  for (const auto& entry : std::filesystem::directory_iterator(results()))
    before[entry.path().filename().string()] =
        std::string(MappedFile(entry.path().string()).text());
  ASSERT_EQ(analyze("--threads 3").code, 0);
  EXPECT_EQ(before.erase("timings.json"), 1u);
  EXPECT_TRUE(before.contains("summary.json"));
  for (const auto& [name, content] : before)
    EXPECT_EQ(MappedFile(results() + "/" + name).text(), content) << name;
}

TEST_F(BadData, NotANumber) {
  HeadFile content = read_head_file(file(0, 1, HeadKind::query));
  content.rows.vectors[6 * 5 + 1] = std::numeric_limits<float>::quiet_NaN();
  write_head_file(file(0, 1, HeadKind::query), content.rows, content.metadata);
  expect_one_failed(analyze(), "l00h01q/data.parquet: row 5");
}

TEST_F(BadData, ABadKeyFileFailsEveryHeadThatReadsIt) {
  write_file(file(1, 0, HeadKind::key), "PAR1 no more");
  const Ended ended = analyze();
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("l01h00k/data.parquet"), HasSubstr("2 of 4 heads")));
  EXPECT_EQ(lines("rotated.csv"), 1 + 2);
}

TEST_F(BadData, AMissingKeyFile) {
  std::filesystem::remove_all(root() + "/l01h00k");
  const Ended ended = analyze();
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("l01h00k/data.parquet: there is no such file"),
                                  HasSubstr("query head 0")));
  EXPECT_EQ(lines("rotated.csv"), 1 + 2);
}

TEST_F(BadData, TruncatedParquet) {
  const std::string path = file(0, 0, HeadKind::query);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  expect_one_failed(analyze(), "l00h00q/data.parquet: not a readable Parquet file");
}

TEST_F(BadData, DuplicateRows) {
  change(file(0, 0, HeadKind::query), [](HeadRows& rows) {
    rows.example_id[7] = rows.example_id[3];
    rows.position[7] = rows.position[3];
  });
  expect_one_failed(analyze(), "rows 3 and 7");
}

TEST_F(BadData, WindowsThatDiffer) {
  change(file(0, 0, HeadKind::query), [](HeadRows& rows) { rows.sliding_window = 64; });
  expect_one_failed(analyze(), "sliding window 64");
}

TEST_F(BadData, VectorsOfDifferentLength) {
  change(file(0, 0, HeadKind::query), [](HeadRows& rows) {
    rows.head_dim = 3;
    rows.vectors.resize(rows.position.size() * 3);
  });
  expect_one_failed(analyze(), "vectors have 3 numbers, those of key head 0 have 6");
}

TEST_F(BadData, OneRowGivesEmptyFieldsWithAReason) {
  change(file(0, 0, HeadKind::query), [](HeadRows& rows) {
    rows.bucket.resize(1);
    rows.example_id.resize(1);
    rows.position.resize(1);
    rows.vectors.resize(6);
  });
  EXPECT_EQ(analyze().code, 0);
  EXPECT_EQ(lines("rotated.csv"), 1 + 4);
  EXPECT_EQ(summary()["undefined"]["taxonomy.csv"]["r_q"]["single_row"], 1);
}

// One query and one key: the difference of the means is parallel to the drift.
TEST_F(BadData, OneQueryAndOneKeyHaveNoSeparation) {
  const auto ended = analyze("--max-tokens 1");
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(summary()["undefined"]["rotated.csv"]["var_frac_b"]["no_separation"], 4);
}

TEST_F(BadData, HeadsOfTwoDimensionsHaveNoComplement) {
  const std::string flat = folder_.file("flat");
  ASSERT_EQ(run("synth " + flat + " --layers 1 --dim 2 --planes 0 --examples 6 --context 64").code,
            0);
  const auto ended = run("analyze " + flat + " --out " + results());
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(lines("complement.csv"), 1);
}

TEST_F(BadData, ConstantPositionsGiveEmptyFieldsWithAReason) {
  const auto one_place = [](HeadRows& rows) {
    std::fill(rows.position.begin(), rows.position.end(), 17);
    for (std::size_t i = 0; i < rows.position.size(); ++i)
      rows.example_id[i] = static_cast<std::int32_t>(i);
  };
  change(file(0, 0, HeadKind::query), one_place);
  change(file(0, 1, HeadKind::query), one_place);
  change(file(0, 0, HeadKind::key), one_place);
  EXPECT_EQ(analyze().code, 0);
  EXPECT_EQ(summary()["undefined"]["rotated.csv"]["alpha_k"]["constant_position"], 2);
  EXPECT_EQ(summary()["undefined"]["taxonomy.csv"]["r_q"]["constant_position"], 2);
  EXPECT_EQ(summary()["taxonomy"]["all"]["mixed"]["heads"].get<int>() +
                summary()["taxonomy"]["all"]["position_dominated"]["heads"].get<int>() +
                summary()["taxonomy"]["all"]["q_positional"]["heads"].get<int>() +
                summary()["taxonomy"]["all"]["k_positional"]["heads"].get<int>() +
                summary()["taxonomy"]["all"]["content_focused"]["heads"].get<int>(),
            2);
}

TEST_F(BadData, OptionsAreChecked) {
  EXPECT_EQ(analyze("--only pca,rotatoin").code, 2);
  EXPECT_THAT(analyze("--only pca,rotatoin").output, HasSubstr("'rotatoin' is not an analysis"));
  EXPECT_EQ(analyze("--head-counts 4").code, 2);
  EXPECT_EQ(analyze("--separation best").code, 2);
  EXPECT_EQ(analyze("--max-pairs 0").code, 2);
  for (const char* bins : {"0", "-1", "9000", "many", "4.5"}) {
    const auto ended = analyze(std::string("--profile-bins ") + bins);
    EXPECT_EQ(ended.code, 2) << bins;
    EXPECT_THAT(ended.output, HasSubstr("--profile-bins")) << bins;
  }
  EXPECT_EQ(analyze("--fifths all").code, 2);
  for (const char* edges : {"5", "0,10,10", "-1,10", "0,x"})
    EXPECT_EQ(analyze(std::string("--length-bins ") + edges).code, 2) << edges;
  EXPECT_THAT(analyze("--length-bins 0,10,5").output, HasSubstr("edge 5 follows 10"));
  EXPECT_EQ(run("analyze " + folder_.file("nowhere") + " --out " + results()).code, 2);
  EXPECT_EQ(run("synth " + folder_.file("s") + " --head-counts 3,2").code, 2);
  EXPECT_EQ(run("synth " + folder_.file("s") + " --dim 4 --planes 3").code, 2);
}

TEST_F(BadData, TheSummarySaysOverWhichBinsTheProfileIs) {
  ASSERT_EQ(analyze("--profile-bins 32 --fifths context --length-bins 0,64,256").code, 0);
  Json profile = summary()["profile"];
  EXPECT_EQ(profile["bins"], 32);
  EXPECT_EQ(profile["context"], 256);
  EXPECT_EQ(profile["fifths"], "context");
  EXPECT_EQ(profile["means"]["all"]["decile"].size(), 10u);
  EXPECT_EQ(profile["means"]["nope"]["quintile"].size(), 5u);
  const Json length = profile["means"]["all"]["length"][1];
  EXPECT_EQ(length["low"], 64);
  EXPECT_EQ(length["high"], 256);
  EXPECT_EQ(length["heads"], 4);
  EXPECT_EQ(lines("profile_bins.csv"), 1 + 4 * (10 + 5 + 2));
  ASSERT_EQ(analyze("--profile-bins buckets --overwrite").code, 0);
  profile = summary()["profile"];
  EXPECT_EQ(profile["bins"], "buckets");
  EXPECT_EQ(profile["fifths"], "range");
  EXPECT_EQ(lines("head_profile.csv"), 1 + 4 * 8);
}

// Heads with other numbers of rows, and rows that end elsewhere.
TEST_F(BadData, HeadsShareTheBinsOfTheProfile) {
  change(file(0, 1, HeadKind::query), [](HeadRows& rows) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < rows.position.size(); ++i) {
      if (rows.position[i] >= 100) continue;
      rows.position[kept] = rows.position[i];
      rows.bucket[kept] = rows.bucket[i];
      rows.example_id[kept] = rows.example_id[i];
      std::copy_n(rows.vectors.begin() + static_cast<std::ptrdiff_t>(6 * i), 6,
                  rows.vectors.begin() + static_cast<std::ptrdiff_t>(6 * kept));
      ++kept;
    }
    rows.position.resize(kept);
    rows.bucket.resize(kept);
    rows.example_id.resize(kept);
    rows.example_key.resize(rows.example_key.empty() ? 0 : kept);
    rows.vectors.resize(6 * kept);
  });
  AnalyzeOptions options;
  options.data_root = root();
  options.pca = options.rotation = false;
  options.quiet = true;
  const auto run = analyze_capture(options);
  ASSERT_EQ(run.heads.size(), 4u);
  for (const auto& head : run.heads) {
    ASSERT_TRUE(head.plasticity) << head.error;
    EXPECT_EQ(head.plasticity->profile_bins, 8);
    EXPECT_EQ(head.plasticity->profile_context, 256);
    for (const auto& point : head.plasticity->profile) EXPECT_EQ(point.low, 32 * point.bin);
  }
  EXPECT_LE(run.heads[1].plasticity->profile.size(), 4u);
}

TEST_F(BadData, OneAnalysisWritesOnlyItsFiles) {
  ASSERT_EQ(
      run("analyze " + root() + " --only pca --components 3 --label mine --out " + results()).code,
      0);
  EXPECT_EQ(lines("qk.csv"), 1 + 4 * 3);
  EXPECT_FALSE(std::filesystem::exists(results() + "/rotated.csv"));
  EXPECT_EQ(summary()["model"], "mine");
  const std::string other = folder_.file("other");
  ASSERT_EQ(run("analyze " + root() + " --only rotation --pairs 1 --out " + other).code, 0);
  EXPECT_TRUE(std::filesystem::exists(other + "/complement.csv"));
  const std::string third = folder_.file("third");
  ASSERT_EQ(
      run("analyze " + root() + " --only plasticity --max-tokens 20 --seed 4 --out " + third).code,
      0);
  EXPECT_TRUE(std::filesystem::exists(third + "/head_metrics.csv"));
  EXPECT_THAT(std::string(MappedFile(third + "/head_metrics.csv").text()), HasSubstr(",20,20,6,"));
}

TEST_F(BadData, AFolderHoldsResultsOfOneSetOfOptions) {
  ASSERT_EQ(run("analyze " + root() + " --only plasticity --layers 1 --out " + results()).code, 0);
  const auto refused = analyze("--layers 0 --only pca");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output, AllOf(HasSubstr("layers is [1] there, [0] here"),
                                    HasSubstr("--overwrite"), HasSubstr("--out")));
  EXPECT_FALSE(std::filesystem::exists(results() + "/qk.csv"));
  EXPECT_THAT(analyze("--layers 1 --only pca --label other").output,
              HasSubstr("label is \"planted\" there, \"other\" here"));
  EXPECT_THAT(analyze("--layers 1 --only plasticity --max-pairs 7").output,
              HasSubstr("max_pairs is 10000000 there, 7 here"));
  // Another analysis with its own options, and the same one again.
  ASSERT_EQ(
      run("analyze " + root() + " --only pca --layers 1 --components 3 --out " + results()).code,
      0);
  ASSERT_EQ(run("analyze " + root() + " --only plasticity --layers 1 --out " + results()).code, 0);
  EXPECT_EQ(summary()["options"]["analyses"], Json::array({"pca", "plasticity"}));
  EXPECT_EQ(summary()["options"]["components"], 3);
  EXPECT_TRUE(summary().contains("taxonomy") && summary().contains("profile"));
  // Overwriting leaves nothing of the results before.
  ASSERT_EQ(analyze("--layers 0 --only rotation --overwrite").code, 0);
  EXPECT_FALSE(std::filesystem::exists(results() + "/qk.csv"));
  EXPECT_FALSE(std::filesystem::exists(results() + "/head_metrics.parquet"));
  EXPECT_EQ(summary()["options"]["layers"], Json::array({0}));
}

TEST_F(BadData, AChangedCaptureIsAnotherSetOfResults) {
  ASSERT_EQ(analyze().code, 0);
  change(file(0, 0, HeadKind::query), [](HeadRows& rows) { rows.vectors[0] += 1; });
  std::filesystem::remove(root() + "/_saver_state.json");
  EXPECT_THAT(analyze("--head-counts 2,1 --label planted").output,
              HasSubstr("the capture has changed since"));
}

// Tables of a run that ended before its summary was written belong to nothing.
TEST_F(BadData, TablesOfAnInterruptedRunAreRemoved) {
  ASSERT_EQ(run("analyze " + root() + " --only pca --layers 1 --out " + results()).code, 0);
  std::filesystem::remove(results() + "/summary.json");
  ASSERT_EQ(analyze("--layers 0 --only rotation").code, 0);
  EXPECT_FALSE(std::filesystem::exists(results() + "/qk.csv"));
  EXPECT_TRUE(std::filesystem::exists(results() + "/rotated.csv"));
}

TEST_F(BadData, HeadsThatFailForOneReasonAreOneLine) {
  for (const int layer : {0, 1})
    for (const int head : {0, 1})
      change(file(layer, head, HeadKind::query), [](HeadRows& rows) {
        rows.bucket.clear();
        rows.example_id.clear();
        rows.example_key.clear();
        rows.position.clear();
        rows.vectors.clear();
      });
  const auto ended = analyze();
  EXPECT_EQ(ended.code, 2) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("layer 0 head 0 and 3 more heads: "));
  EXPECT_THAT(ended.output, Not(HasSubstr("layer 1 head 1")));
}

}  // namespace
}  // namespace qkscope
