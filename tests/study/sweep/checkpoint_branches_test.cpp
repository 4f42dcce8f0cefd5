// Branches as checkpoints: parsing, order, labels and selection.
#include <gmock/gmock.h>

#include "base/io/folder.h"
#include "base/io/output_file.h"
#include "error_message.h"
#include "study/sweep/sweep.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Names = std::vector<std::string>;

const Names kSmolLm3 = {"main",
                        "lc-32k-to-64k-step-20000",
                        "lc-32k-to-64k-step-4000",
                        "lc-4k-to-32k-step-20000",
                        "lc-4k-to-32k-step-4000",
                        "it-SFT",
                        "stage3-step-4720000",
                        "stage2-step-4200000",
                        "stage1-step-1200000",
                        "stage1-step-40000",
                        "stage1-step-3440000",
                        "stage1-step-2400000"};

Names labels(const std::vector<CheckpointBranch>& branches) {
  Names list;
  for (const auto& branch : branches) list.push_back(branch.label);
  return list;
}

TEST(CheckpointBranches, PhaseAndStepAreParsedFromNames) {
  const auto expect = [](const std::string& name, const std::string& phase, std::int64_t step) {
    const auto branch = parse_branch_name(name);
    EXPECT_EQ(branch.phase, phase) << name;
    EXPECT_EQ(branch.step.value_or(-1), step) << name;
  };
  expect("stage1-step-40000", "stage1", 40000);
  expect("lc-4k-to-32k-step-4000", "lc-4k-to-32k", 4000);
  expect("step1000", "", 1000);
  expect("stage2-ingredient1-step500-tokens3B", "stage2-ingredient1", 500);
  expect("global_step20", "", 20);
  expect("checkpoint-7", "", 7);
  expect("pretrain/iter_0012", "pretrain", 12);
  expect("Stage1_Step_5", "Stage1", 5);
  for (const char* name :
       {"main", "it-SFT", "step", "steps-of-a-dance", "v1.0", "step-99999999999999999999999"})
    expect(name, "", -1);
}

TEST(CheckpointBranches, LabelsMatchThePublishedCheckpoints) {
  EXPECT_THAT(labels(checkpoint_branches(kSmolLm3)),
              ElementsAre("S1-40K", "S1-1.2M", "S1-2.4M", "S1-3.44M", "S2-4.2M", "S3-4.72M",
                          "LC1-4K", "LC1-20K", "LC2-4K", "LC2-20K"));
  // A selection keeps the labels.
  EXPECT_THAT(labels(checkpoint_branches(kSmolLm3, {.match = {"lc-32k*"}})),
              ElementsAre("LC2-4K", "LC2-20K"));
  EXPECT_THAT(labels(checkpoint_branches(kSmolLm3, {.match = {"main", "it-*"}})),
              ElementsAre("it-SFT", "main"));
  EXPECT_TRUE(checkpoint_branches(kSmolLm3, {.match = {"x*"}}).empty());
}

TEST(CheckpointBranches, LabelsAreSafeAndUnique) {
  EXPECT_THAT(
      labels(checkpoint_branches(
          {"step-1000", "step-1000-tokens2B", "step-512", "a b/step-5", "../step-7"})),
      testing::UnorderedElementsAre("step-1000", "step-1000-tokens2B", "512", "a-b-5", "7"));
  EXPECT_EQ(abbreviate_step(143000), "143K");
  EXPECT_EQ(abbreviate_step(1), "1");
  EXPECT_EQ(abbreviate_step(12345), "12345");
  EXPECT_EQ(abbreviate_step(1500), "1.5K");
}

TEST(CheckpointBranches, DigitsCompareAsNumbers) {
  EXPECT_TRUE(less_in_natural_order("lc-4k", "lc-32k"));
  EXPECT_FALSE(less_in_natural_order("lc-32k", "lc-4k"));
  EXPECT_TRUE(less_in_natural_order("a", "b"));
  EXPECT_TRUE(less_in_natural_order("a", "a1"));
  EXPECT_TRUE(less_in_natural_order("x2", "x010"));
  EXPECT_FALSE(less_in_natural_order("x1", "x1"));
}

TEST(CheckpointBranches, EveryNthAndLogSpacedBranchesAreSelected) {
  Names names;
  for (int i = 1; i <= 100; ++i) names.push_back("step" + std::to_string(i));
  EXPECT_THAT(labels(checkpoint_branches(names, {.match = {}, .every = 40})),
              ElementsAre("1", "41", "81", "100"));
  EXPECT_THAT(labels(checkpoint_branches(names, {.match = {}, .log = 3})),
              ElementsAre("1", "10", "100"));
  EXPECT_THAT(labels(checkpoint_branches(names, {.match = {}, .log = 1})), ElementsAre("100"));
  EXPECT_EQ(checkpoint_branches(names, {.match = {}, .log = 200}).size(), 100u);
  // At most n branches of each phase.
  EXPECT_THAT(labels(checkpoint_branches(kSmolLm3, {.match = {}, .log = 1})),
              ElementsAre("S1-3.44M", "S2-4.2M", "S3-4.72M", "LC1-20K", "LC2-20K"));
  EXPECT_THROW(checkpoint_branches(names, {.match = {}, .every = 0}), Error);
  // Branches without a step are not the end of the training.
  EXPECT_THAT(
      labels(checkpoint_branches({"main", "step1", "step9", "step81"}, {.match = {"*"}, .log = 2})),
      ElementsAre("1", "81", "main"));
  EXPECT_THROW(checkpoint_branches(names, {.match = {}, .every = 2, .log = 2}), Error);
}

class BranchSweepFile : public testing::Test {
 protected:
  void SetUp() override {
    make_folders(folder_.file("configs"));
    write_file(folder_.file("configs/base.yaml"),
               "dataset: {path: d}\nmodel: {name: m}\ntokenizer: {max_length: 64}\n");
  }
  BranchSweep sweep(const Names& names) const {
    return {"org/tiny", folder_.file("configs/base.yaml"),
            checkpoint_branches(names, {.match = {"*"}})};
  }

  TemporaryFolder folder_;
};

TEST_F(BranchSweepFile, IsAValidSweepOverTheBranches) {
  const auto file = folder_.file("sweeps/training.yaml");
  write_branch_sweep(sweep({"stage1-step-2000", "stage1-step-10", "odd: #name, {x}"}), file);
  const auto read = read_sweep_config({file, {}, ""});
  EXPECT_EQ(read.name, "training");
  ASSERT_EQ(read.runs.size(), 3u);
  EXPECT_EQ(read.runs[0].label, "S1-10");
  EXPECT_EQ(read.runs[1].phase, "stage1");
  EXPECT_EQ(read.runs[1].capture.model.name, "org/tiny");
  EXPECT_EQ(read.runs[1].capture.model.revision, "stage1-step-2000");
  EXPECT_EQ(read.runs[1].capture.tokenizer.max_length, 64);
  EXPECT_EQ(read.runs[2].capture.model.revision, "odd: #name, {x}");
}

TEST_F(BranchSweepFile, ErrorsLeaveNoFile) {
  const auto file = folder_.file("training.yaml");
  EXPECT_THAT(bad_input_message([&] { write_branch_sweep(sweep({}), file); }),
              HasSubstr("no branches"));
  auto wrong = sweep({"step-1"});
  wrong.config = folder_.file("none.yaml");
  EXPECT_THAT(bad_input_message([&] { write_branch_sweep(wrong, file); }),
              HasSubstr("no such capture configuration"));
  wrong.config = folder_.file("configs/bad.yaml");
  write_file(wrong.config, "dataset: {pathh: x}\n");
  EXPECT_THAT(bad_input_message([&] { write_branch_sweep(wrong, file); }),
              HasSubstr("bad.yaml:1: dataset.pathh: there is no such key; did you mean"));
  EXPECT_EQ(entry_names(folder_.path()), Names{"configs"});
}

}  // namespace
}  // namespace qkscope
