// The section `checkpoints` of a sweep file, and the installed sweeps of the atlas.
#include <filesystem>
#include <map>

#include <gmock/gmock.h>

#include "base/core/error.h"
#include "capture/run/capture_fixture.h"
#include "paths.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kBranches[] =
    "name: s\n"
    "base:\n"
    "  dataset: {path: d.jsonl}\n"
    "  tokenizer: {max_length: 100}\n"
    "checkpoints:\n"
    "  - repository: org/model\n";

class SweepCheckpoints : public testing::Test {
 protected:
  SweepConfig read(const std::string& text, std::int64_t every = 0, std::int64_t log = 0) {
    const auto path = folder_.file("sweep.yaml");
    write_text(path, text);
    return read_sweep_config(
        {.file = path, .overrides = {}, .data_folder = "", .every = every, .log = log},
        [this](const std::string& sweep, const std::string& repository) {
          asked_.push_back(sweep + " " + repository);
          return listed_;
        });
  }

  std::string complaint(const std::string& text) {
    try {
      read(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      return error.what();
    }
    return "accepted";
  }

  static std::vector<std::string> labels(const SweepConfig& config) {
    std::vector<std::string> all;
    for (const auto& run : config.runs) all.push_back(run.label);
    return all;
  }

  TemporaryFolder folder_;
  std::vector<std::string> listed_;
  std::vector<std::string> asked_;
};

TEST_F(SweepCheckpoints, PatternsNeedNoRequestToTheHub) {
  const auto sweep = read(std::string(kBranches) +
                          "    branches:\n"
                          "      stage1-step-{step}: [1000, {from: 2000, to: 6000, every: 2000}]\n"
                          "      lc-step-{step}: 50\n"
                          "      final:\n"
                          "    family: Model\n"
                          "    overrides: {tokenizer: {max_length: 200}}\n"
                          "    phases:\n"
                          "      lc: {tokenizer.max_length: 300}\n"
                          "runs:\n"
                          "  - {label: other, overrides: {model.name: m}}\n");
  EXPECT_THAT(labels(sweep),
              ElementsAre("other", "S1-1K", "S1-2K", "S1-4K", "S1-6K", "LC1-50", "final"));
  EXPECT_TRUE(asked_.empty());
  EXPECT_TRUE(sweep.listed.empty());
  const auto& run = sweep.runs[4];
  EXPECT_EQ(run.capture.model.name, "org/model");
  EXPECT_EQ(run.capture.model.revision, "stage1-step-6000");
  EXPECT_EQ(run.capture.tokenizer.max_length, 200);
  EXPECT_EQ(run.phase, "stage1");
  EXPECT_EQ(run.family, "Model");
  EXPECT_EQ(run.order, 4);
  EXPECT_EQ(sweep.runs[5].capture.tokenizer.max_length, 300);
  EXPECT_EQ(sweep.runs[0].capture.tokenizer.max_length, 100);
}

TEST_F(SweepCheckpoints, SelectionsKeepTheLabels) {
  const auto text = std::string(kBranches) +
                    "    branches:\n      step{step}: {from: 0, to: 1000, every: 10}\n"
                    "    log: 3\n    prefix: m-\n";
  EXPECT_THAT(labels(read(text)), ElementsAre("m-0", "m-30", "m-1K"));
  EXPECT_THAT(labels(read(text, 50)), ElementsAre("m-0", "m-500", "m-1K"));
  EXPECT_THAT(labels(read(text, 0, 1)), ElementsAre("m-1K"));
  EXPECT_EQ(read(text, 1).runs.size(), 101u);
}

TEST_F(SweepCheckpoints, WithoutPatternsTheRepositoryIsListedOnce) {
  listed_ = {"main", "stage1-step10-tokens1B", "stage1-step200-tokens9B", "stage2-step5-tokens1B"};
  const auto sweep = read(std::string(kBranches) +
                          "    match: 'stage1-*'\n"
                          "  - repository: org/model\n"
                          "    match: ['stage2-*', main]\n");
  EXPECT_THAT(labels(sweep), ElementsAre("S1-10", "S1-200", "S2-5", "main"));
  EXPECT_THAT(asked_, ElementsAre("s org/model"));
  EXPECT_EQ(sweep.listed.at("org/model"), listed_);
}

TEST_F(SweepCheckpoints, ErrorsNameTheCause) {
  const auto rule = [&](const std::string& text) { return complaint(kBranches + text); };
  EXPECT_THAT(rule("    branches: {}\n"), HasSubstr("sweep.yaml:7: checkpoints[0].branches"));
  EXPECT_THAT(rule("    branches:\n      s{step}: x\n"), HasSubstr("expected of 's{step}' steps"));
  EXPECT_THAT(rule("    branches:\n      s{step}:\n"), HasSubstr("steps: a number"));
  EXPECT_THAT(rule("    branches:\n      s{step}: [-1]\n"), HasSubstr("steps: a number"));
  EXPECT_THAT(rule("    branches:\n      s{step}: {from: 1, to: 4, every: 2}\n"),
              HasSubstr("reaches `to`"));
  EXPECT_THAT(rule("    branches:\n      s{step}: {from: 4, to: 1, every: 1}\n"),
              HasSubstr("reaches `to`"));
  EXPECT_THAT(rule("    branches:\n      s{step}: {from: 0, to: 9, every: 0}\n"),
              HasSubstr("reaches `to`"));
  EXPECT_THAT(rule("    branches:\n      s{step}: {from: 1, to: 900000000, every: 1}\n"),
              HasSubstr("at most"));
  EXPECT_THAT(rule("    branches:\n      s{step}: {from: 1, to: 3}\n"), HasSubstr("a range"));
  EXPECT_THAT(rule("    branches:\n      main: 3\n"), HasSubstr("there is no {step} in the name"));
  EXPECT_THAT(rule("    branches:\n      a/../{step}: 3\n"), HasSubstr("the name of a branch"));
  EXPECT_THAT(rule("    branches:\n      s{step}: [1, 1]\n"), HasSubstr("s1 is there twice"));
  EXPECT_THAT(rule("    branches:\n      s{step}: 1\n    log: 2\n    every: 2\n"),
              HasSubstr("nothing beside `every`"));
  EXPECT_THAT(rule("    branches:\n      s-step{step}: 1\n    phases: {t: {}}\n"),
              HasSubstr("found \"t\", expected a phase of the branches of org/model: s"));
  EXPECT_THAT(rule("    branches:\n      step{step}: 1\n    match: 'b*'\n"),
              HasSubstr("none of the 1 branches of org/model matches"));
  EXPECT_THAT(rule("    branches:\n      step{step}: 1\n    prefix: ../\n"), HasSubstr("a label"));
  EXPECT_THAT(rule("    branches:\n      step{step}: 1\n"
                   "  - repository: org/other\n    branches:\n      step{step}: 1\n"),
              HasSubstr("checkpoints of org/other: found \"1\" as a label"));
  EXPECT_THAT(rule("    repo: x\n"), HasSubstr("repo"));
  EXPECT_THAT(complaint("name: s\ncheckpoints:\n  - repository: a/b/c\n"),
              HasSubstr("the name of a repository"));
  EXPECT_THAT(complaint("name: s\n"), HasSubstr("at least one run, or `checkpoints`"));
  listed_ = {"main"};
  EXPECT_THAT(rule(""), HasSubstr("tells a step in its name"));
}

TEST_F(SweepCheckpoints, SelectionOptionsNeedCheckpoints) {
  const auto text =
      "name: s\nbase: {dataset: {path: d}, model: {name: m}}\nruns:\n  - {label: a}\n";
  try {
    read(text, 0, 3);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--log"));
  }
}

constexpr std::size_t kSmolLm = 128;
constexpr std::size_t kPythia = 154;

class Atlas : public SweepCheckpoints {
 protected:
  SweepConfig atlas(const std::string& name, std::int64_t every = 0) {
    return read_sweep_config({.file = source_path("configs/sweeps/atlas/") + name,
                              .overrides = {},
                              .data_folder = "",
                              .every = every},
                             [this](const std::string&, const std::string&) { return listed_; });
  }
};

TEST_F(Atlas, SmolLmLabelsMatchThePublishedNumbers) {
  const auto all = atlas("smollm3.yaml", 1);
  EXPECT_EQ(all.runs.size(), kSmolLm);
  const auto chosen = labels(atlas("smollm3.yaml"));
  EXPECT_EQ(chosen.size(), 46u);
  const auto training =
      read_sweep_config({source_path("configs/sweeps/smollm3-training.yaml"), {}, ""});
  std::map<std::string, const SweepRun*> by_label;
  for (const auto& run : all.runs) by_label[run.label] = &run;
  for (const auto& run : training.runs) {
    ASSERT_TRUE(by_label.contains(run.label)) << run.label;
    const auto& ours = by_label[run.label]->capture;
    EXPECT_EQ(ours.model.revision, run.capture.model.revision);
    EXPECT_EQ(ours.model.name, run.capture.model.name);
    EXPECT_EQ(ours.tokenizer.name, run.capture.tokenizer.name);
    EXPECT_EQ(ours.tokenizer.max_length, run.capture.tokenizer.max_length);
    EXPECT_EQ(ours.capture.sampler.min_bucket_size, run.capture.capture.sampler.min_bucket_size);
  }
}

TEST_F(Atlas, EveryPythiaHasAllOfItsCheckpoints) {
  for (const char* size : {"14m", "31m", "70m", "160m", "410m", "1b", "1.4b", "2.8b"}) {
    const auto name = std::string("pythia-") + size;
    const auto all = atlas(name + ".yaml", 1);
    EXPECT_EQ(all.name, name);
    EXPECT_EQ(all.runs.size(), kPythia) << name;
    EXPECT_EQ(all.runs.front().label, std::string(size) + "-0");
    EXPECT_EQ(all.runs.back().label, std::string(size) + "-143K");
    EXPECT_EQ(all.runs.back().capture.model.revision, "step143000");
    EXPECT_EQ(atlas(name + ".yaml").runs.size(), 16u);
  }
}

TEST_F(Atlas, OtherSweepsUseTheBranchesOfTheHub) {
  listed_ = {"main", "stage1-step140000-tokens294B", "stage1-step300-tokens1B",
             "stage2-ingredient1-step1000-tokens5B", "stage2-ingredient2-step1000-tokens5B"};
  for (const char* name : {"olmo2-1b", "olmo2-7b", "olmo2-13b", "olmo2-32b"})
    EXPECT_EQ(atlas(std::string(name) + ".yaml").runs.size(), 4u) << name;
  listed_ = {"main", "stage1-step1000", "stage1-step1413814", "stage2-step47684",
             "stage3-step11921"};
  for (const char* name : {"olmo3-7b", "olmo3-32b", "olmo-hybrid-7b"})
    EXPECT_EQ(atlas(std::string(name) + ".yaml").runs.size(), 4u) << name;
  listed_ = {"main", "step50000-tokens210B", "step2000000-tokens9752B"};
  EXPECT_THAT(labels(atlas("apertus-8b.yaml")), ElementsAre("8b-50K", "8b-2M"));
  EXPECT_EQ(atlas("apertus-70b.yaml").runs.size(), 2u);
  EXPECT_THAT(labels(atlas("olmoe-1b-7b.yaml")), ElementsAre("1b-7b-50K", "1b-7b-2M"));
}

TEST_F(Atlas, EverySweepIsTested) {
  std::size_t sweeps = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("configs/sweeps/atlas")))
    sweeps += entry.path().filename() != "capture.yaml";
  EXPECT_EQ(sweeps, 19u);
}

}  // namespace
}  // namespace qkscope
