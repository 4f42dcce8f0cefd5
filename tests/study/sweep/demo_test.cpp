// `qkscope demo` with the installed sweep file over tiny checkpoints.
#include <gmock/gmock.h>

#include "base/io/folder.h"
#include "capture/run/capture_fixture.h"
#include "paths.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Demo : public testing::Test {
 protected:
  void SetUp() override {
    make_folders(folder_.file("data/demo/checkpoints"));
    make_folders(folder_.file("data/configs/demo"));
    write_documents(folder_.file("data/demo/corpus.jsonl"), 24, 20);
    fs::copy_file(source_path("configs/demo/sweep.yaml"),
                  folder_.file("data/configs/demo/sweep.yaml"));
    fs::copy(source_path("share/published"), folder_.file("data/published"));
    for (const auto* label : {"S1-40", "S1-1200", "S1-2400", "S1-3440", "S2-4200", "S3-4720",
                              "LC1-240", "LC1-1200", "LC2-240", "LC2-1200"})
      fs::create_directory_symlink(tiny_checkpoint(),
                                   folder_.file("data/demo/checkpoints/") + label);
  }

  Outcome run(const std::string& command) const {
    return run_program("cd " + folder_.path() + "; export QKSCOPE_DATA=data; " + command);
  }

  TemporaryFolder folder_;
};

TEST_F(Demo, RunsTheShippedSweepAndPrintsItsTable) {
  const auto outcome = run("qkscope demo");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("10 runs in"));
  EXPECT_THAT(outcome.out, HasSubstr("All layers (16 heads)"));
  EXPECT_THAT(outcome.out, HasSubstr("Layers with RoPE (12 heads)"));
  EXPECT_THAT(outcome.out, HasSubstr("\nLC2-1200 "));
  EXPECT_THAT(outcome.out, HasSubstr("results in results/demo\n"));
  const auto compared = run("qkscope compare results/demo");
  EXPECT_EQ(compared.status, 0) << compared.err;
  EXPECT_THAT(compared.err, HasSubstr("matched by order"));
  EXPECT_THAT(compared.out, HasSubstr("  S1-40K / S1-40 "));
}

TEST_F(Demo, MissingDataErrorNamesTheFoldersSearched) {
  fs::remove_all(folder_.file("data"));
  const auto outcome = run("qkscope demo");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("looked in data/demo"));
}

// The steps of `./run.sh demo-real` after the downloads, on a smaller model.
TEST(DemoReal, AGgufFileIsCapturedAnalysedAndCompared) {
  const TemporaryFolder folder;
  make_folders(folder.file("build/demo-real/texts"));
  fs::copy_file(source_path("tests/golden/gguf_llama/model.gguf"),
                folder.file("build/demo-real/SmolLM2-135M-Instruct.Q4_1.gguf"));
  for (int i = 0; i < 8; ++i) {
    std::string text = std::to_string(i) + " ";
    for (int word = 0; word < 60; ++word) text += word * i % 7 < 3 ? "stone " : "river ";
    write_text(folder.file("build/demo-real/texts/") + std::to_string(i) + ".txt", text);
  }
  const auto run = [&](const std::string& command) {
    const auto outcome = run_program("cd " + folder.path() + "; qkscope " + command);
    EXPECT_EQ(outcome.status, 0) << command << "\n" << outcome.err;
    return outcome.out;
  };
  const auto config = " --config " + source_path("configs/demo-real/capture.yaml") +
                      " --set tokenizer.max_length=128 --set capture.min_bucket_size=8";
  run("capture" + config);
  run("stats" + config + " --set dataset.max_samples=4 --set output.data_root=statistics");
  run("analyze results/demo-real/capture --out tables --label SmolLM2-135M-Instruct");
  run("analyze statistics --out exact --label SmolLM2-135M-Instruct");
  EXPECT_TRUE(fs::exists(folder.file("exact/attention.csv")));
  const auto compared =
      run("compare tables --published " + source_path("configs/demo-real/reference.csv") +
          " --as SmolLM2-135M-Instruct");
  for (const auto* name : {"r_q", "abs_r_k", "pc0_variance", "ap_overall", "ap_first20", "ap_drop"})
    EXPECT_THAT(compared, HasSubstr(name));
}

}  // namespace
}  // namespace qkscope
