// Sweep files: runs from base, own configurations and overrides, and error messages.
#include <gmock/gmock.h>

#include "base/core/error.h"
#include "base/io/folder.h"
#include "capture/run/capture_fixture.h"
#include "capture/run/capture_plan.h"
#include "paths.h"
#include "qkscope/experimental/options.h"
#include "study/compare/run_tables.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

constexpr char kHead[] =
    "name: s\n"
    "base:\n"
    "  dataset: {path: d.jsonl}\n"
    "  model: {name: m, config_overrides: {rope_scaling: {factor: 2.0, kind: a}}}\n";

class SweepFile : public testing::Test {
 protected:
  SweepConfig read(const std::string& text, const std::vector<std::string>& overrides = {},
                   const std::string& data_folder = "") {
    write_text(path(), text);
    return read_sweep_config({path(), overrides, data_folder});
  }
  std::string path() const { return folder_.file("sweep.yaml"); }

  std::string complaint(const std::string& text, const std::vector<std::string>& overrides = {}) {
    try {
      read(text, overrides);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      const std::string said = error.what();
      const auto at = said.find(folder_.path() + "/");
      return at == std::string::npos
                 ? said
                 : said.substr(0, at) + said.substr(at + folder_.path().size() + 1);
    }
    return "accepted";
  }

  TemporaryFolder folder_;
};

TEST_F(SweepFile, RunsCombineTheBaseWithTheirOverrides) {
  const auto sweep = read(std::string(kHead) +
                              "analysis: {components: 4, query_model: linear, seed: 7, "
                              "profile_bins: buckets, fifths: context, length_bins: [0, 9], "
                              "layers: [0, 3], heads: [[0, 1], [3, 2]], planes_of: [[3, 2]], "
                              "scatter: 5, attention: sliding}\n"
                              "runs:\n"
                              "  - {label: late, order: 9, phase: p2, family: smollm3}\n"
                              "  - label: early\n"
                              "    overrides:\n"
                              "      tokenizer.max_length: 64\n"
                              "      model: {config_overrides: {rope_scaling: {factor: 8.0}}}\n",
                          {"dataset.max_samples=5"});
  EXPECT_EQ(sweep.name, "s");
  EXPECT_EQ(sweep.analysis.pca_options.components, 4);
  EXPECT_EQ(sweep.analysis.plasticity_options.profile_model,
            PlasticityOptions::QueryModelKind::linear);
  EXPECT_EQ(sweep.analysis.plasticity_options.profile_bins, PlasticityOptions::kBuckets);
  EXPECT_EQ(sweep.analysis.plasticity_options.fifths, PlasticityOptions::Fifths::context);
  EXPECT_EQ(sweep.analysis.plasticity_options.length_bins, (std::vector<std::int64_t>{0, 9}));
  EXPECT_EQ(sweep.analysis.seed, 7u);
  EXPECT_EQ(sweep.analysis.layers, (std::vector<int>{0, 3}));
  const HeadId second{3, 2, HeadKind::query};
  ASSERT_EQ(sweep.analysis.heads.size(), 2u);
  EXPECT_EQ(sweep.analysis.heads[1], second);
  EXPECT_EQ(sweep.analysis.planes_of, std::vector<HeadId>{second});
  EXPECT_EQ(sweep.analysis.scatter, 5);
  EXPECT_EQ(sweep.analysis.attention, AttentionKind::sliding);
  ASSERT_EQ(sweep.runs.size(), 2u);
  const auto& early = sweep.runs[0];
  EXPECT_EQ(early.label, "early");
  EXPECT_EQ(early.phase, "");
  EXPECT_EQ(early.order, 1);
  EXPECT_EQ(early.capture.tokenizer.max_length, 64);
  EXPECT_EQ(config_overrides(early.capture.model),
            (Json{{"rope_scaling", {{"factor", 8.0}, {"kind", "a"}}}}));
  const auto& late = sweep.runs[1];
  EXPECT_EQ(late.order, 9);
  EXPECT_EQ(late.family, "smollm3");
  EXPECT_EQ(late.capture.tokenizer.max_length, 4096);
  EXPECT_EQ(config_overrides(late.capture.model)["rope_scaling"]["factor"], 2.0);
  EXPECT_EQ(late.capture.dataset.max_samples, 5);
}

TEST_F(SweepFile, OwnConfigurationsAreRelativeToTheSweepFile) {
  write_text(folder_.file("a.yaml"), "dataset: {path: d}\nmodel: {name: a}\n");
  write_text(folder_.file("b.yaml"), "dataset: {path: d}\nmodel: {name: b}\n");
  const auto sweep =
      read("name: s\nbase: a.yaml\nruns:\n  - {label: one}\n  - {label: two, config: b.yaml}\n");
  EXPECT_EQ(sweep.runs[0].capture.model.name, "a");
  EXPECT_EQ(sweep.runs[1].capture.model.name, "b");
}

TEST_F(SweepFile, PathsAreLookedUpInTheDataFolderFirst) {
  make_folders(folder_.file("data/m"));
  write_text(folder_.file("data/d.jsonl"), "");
  const std::string text = std::string(kHead) + "data_folder: data\nruns: [{label: a}]\n";
  const auto sweep = read(text);
  EXPECT_EQ(sweep.runs[0].capture.model.name, folder_.file("data/m"));
  EXPECT_EQ(sweep.runs[0].capture.tokenizer.name, folder_.file("data/m"));
  EXPECT_EQ(sweep.runs[0].capture.dataset.path, folder_.file("data/d.jsonl"));
  make_folders(folder_.file("other"));
  EXPECT_EQ(read(text, {}, folder_.file("other")).runs[0].capture.model.name, "m");
}

TEST_F(SweepFile, ErrorsNameTheLine) {
  const std::string head = kHead;
  EXPECT_EQ(complaint(head + "run: []\nruns: [{label: a}]\n"),
            "sweep.yaml:5: run: there is no such key; did you mean runs?");
  EXPECT_THAT(complaint(head), HasSubstr("runs is missing: expected a list of at least one run"));
  EXPECT_THAT(complaint(head + "runs: []\n"), HasSubstr("expected a list of at least one run"));
  EXPECT_EQ(complaint(head + "runs: {label: a}\n"),
            "sweep.yaml:5: runs: found a map, expected a list");
  EXPECT_EQ(complaint(head + "runs:\n  - text\n"),
            "sweep.yaml:6: runs[0]: found \"text\", expected a map");
  EXPECT_EQ(complaint(head + "runs:\n  - {label: a, fase: x}\n"),
            "sweep.yaml:6: runs[0].fase: there is no such key; did you mean runs[0].phase?");
  EXPECT_THAT(complaint(head + "runs:\n  - {phase: x}\n"), HasSubstr("runs[0].label is missing"));
  EXPECT_EQ(complaint(head + "runs:\n  - {label: a}\n  - {label: a}\n"),
            "sweep.yaml:7: runs[1].label: found \"a\", expected another name: an earlier run has "
            "this one");
  EXPECT_THAT(complaint("name: s\nruns: [{label: a}]\n"),
              HasSubstr("run a: sweep.yaml: dataset.path is missing"));
  EXPECT_THAT(complaint("- a\n"), HasSubstr("expected a map of keys and values"));
  EXPECT_THAT(complaint("name: [\n"), HasSubstr("not YAML"));
  EXPECT_THAT(complaint(head + "base: x\nruns: [{label: a}]\n"),
              HasSubstr("the key is there twice"));
}

TEST_F(SweepFile, NamesMustBeSafeFolderNames) {
  for (const std::string name : {"../up", "a/b", ".hidden", "-x", "a b", "''", "\"a\\n\""})
    EXPECT_THAT(complaint(std::string(kHead) + "runs: [{label: " + name + "}]\n"),
                HasSubstr("runs[0].label"))
        << name;
  EXPECT_THAT(complaint("name: a/b\nruns: [{label: a}]\n"), HasSubstr("a name for a folder"));
  EXPECT_THAT(complaint("name: " + std::string(101, 'x') + "\nruns: [{label: a}]\n"),
              HasSubstr("a name for a folder"));
}

TEST_F(SweepFile, ErrorsInACaptureConfigurationNameItsFile) {
  const std::string head = kHead;
  EXPECT_EQ(complaint(head + "runs:\n  - {label: a, overrides: {capture.layer: [1]}}\n"),
            "run a: sweep.yaml:6: capture.layer: there is no such key; did you mean "
            "capture.layers?");
  EXPECT_EQ(complaint(head + "runs:\n  - label: a\n    overrides:\n      tokenizer:\n"
                             "        max_length: no\n"),
            "run a: sweep.yaml:9: tokenizer.max_length: found \"no\", expected a whole number from "
            "1 on");
  EXPECT_EQ(complaint(head + "  tokenizers: {}\nruns: [{label: a}]\n"),
            "run a: sweep.yaml:5: tokenizers: there is no such key; did you mean tokenizer?");
  EXPECT_EQ(
      complaint(head + "runs: [{label: a}]\n", {"capture.seed=1"}),
      "run a: --set capture.seed: there is no such key; known are capture_keys, "
      "capture_pre_rope, capture_queries, capture_token_strings, full_attention_only, "
      "head_sampling, heads, layers, max_rows_per_batch, min_bucket_size, non_finite, sampler");
  EXPECT_EQ(complaint(head + "runs:\n  - {label: a, overrides: {output.data_root: x}}\n"),
            "run a: sweep.yaml:6: output.data_root: a sweep chooses the folders of its captures; "
            "leave it out");
  EXPECT_THAT(complaint(head + "runs:\n  - {label: a, config: none.yaml}\n"),
              HasSubstr("none.yaml"));
}

TEST_F(SweepFile, RunsMayUseExistingCaptures) {
  const auto sweep = read(
      "name: s\nruns:\n"
      "  - {label: hub, data: 'org/name@step-1', model: org/model, phase: p1}\n"
      "  - {label: disk, data: captures/one, q_heads: 8, k_heads: 2, nope_layers: [3, 7]}\n");
  EXPECT_EQ(sweep.runs[0].data, "org/name@step-1");
  EXPECT_EQ(sweep.runs[0].model, "org/model");
  EXPECT_EQ(sweep.runs[0].phase, "p1");
  EXPECT_FALSE(sweep.runs[0].head_counts);
  EXPECT_EQ(sweep.runs[1].head_counts->query_heads, 8);
  EXPECT_EQ(sweep.runs[1].head_counts->key_heads, 2);
  EXPECT_EQ(sweep.runs[1].nope_layers, (std::vector<int>{3, 7}));
  const auto with = [&](const std::string& more, const std::vector<std::string>& set = {}) {
    return complaint("name: s\nruns:\n  - {label: a, data: d" + more + "}\n", set);
  };
  EXPECT_THAT(with(", config: c.yaml"), HasSubstr("nothing is captured"));
  EXPECT_THAT(with(", overrides: {model.revision: x}"), HasSubstr("nothing is captured"));
  EXPECT_THAT(with(", q_heads: 4"), HasSubstr("both or neither"));
  EXPECT_THAT(with(", q_heads: 0, k_heads: 0"), HasSubstr("q_heads"));
  EXPECT_THAT(with(", nope_layers: [-1]"), HasSubstr("numbers of layers"));
  EXPECT_THAT(with(", modle: m"), HasSubstr("did you mean"));
  EXPECT_THAT(with("", {"capture.min_bucket_size=4"}), HasSubstr("nothing is captured"));
}

TEST_F(SweepFile, CompositionIsReadAndChecked) {
  const auto text = [](const std::string& composition, const std::string& run = "label: a") {
    return std::string(kHead) + "composition: {" + composition + "}\nruns: [{" + run + "}]\n";
  };
  const auto read_section = read(text("heads: 7.1, samples: 50, texts: 3, seed: 4")).composition;
  ASSERT_TRUE(read_section.has_value());
  EXPECT_EQ(read_section->heads, "7.1");
  EXPECT_EQ(read_section->options.samples, 50);
  EXPECT_EQ(read_section->options.seed, 4u);
  EXPECT_EQ(read_section->texts, 3);
  EXPECT_THAT(complaint(text("samples: 50")), HasSubstr("composition.heads"));
  EXPECT_THAT(complaint(text("heads: 7.1, sample: 5")), HasSubstr("composition.samples?"));
  EXPECT_THAT(complaint(text("heads: 7.1, texts: 0")), HasSubstr("composition.texts"));
  EXPECT_THAT(complaint(text("heads: 7.1", "label: a, data: d")), HasSubstr("has only data"));
}

TEST_F(SweepFile, AnalysisOptionsAreChecked) {
  const auto with = [&](const std::string& analysis) {
    return complaint(std::string(kHead) + "analysis: {" + analysis + "}\nruns: [{label: a}]\n");
  };
  EXPECT_EQ(with("component: 3"),
            "sweep.yaml:5: analysis.component: there is no such key; did you mean "
            "analysis.components?");
  EXPECT_THAT(with("components: 0"), HasSubstr("a whole number from 1 to 1048576"));
  EXPECT_THAT(with("components: 5000000000"), HasSubstr("a whole number from 1 to 1048576"));
  EXPECT_THAT(with("high: 1.5"), HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(with("max_omega: 3.2"), HasSubstr("a number from 1e-06 to 3.14159"));
  EXPECT_THAT(with("seed: -1"), HasSubstr("a whole number from 0 on"));
  EXPECT_THAT(with("profile_bins: 9000"), HasSubstr("from 1 to 8192, or buckets"));
  EXPECT_THAT(with("label: x"), HasSubstr("there is no such key"));
  EXPECT_THAT(with("layers: [-1]"), HasSubstr("numbers of layers, from 0 on"));
  EXPECT_THAT(with("heads: [3, 5]"), HasSubstr("analysis.heads"));
  EXPECT_THAT(with("planes_of: 3.5"), HasSubstr("pairs [layer, head], as [[3, 5], [3, 6]]"));
  EXPECT_THAT(with("scatter: -1"), HasSubstr("analysis.scatter"));
  EXPECT_THAT(with("attention: wide"), HasSubstr("any, full or sliding"));
  EXPECT_THAT(with("separation: median"), HasSubstr("mean, eigen or eigen-then-project"));
  // Every option of the table refuses what is no plain number within its bounds.
  for (const auto& option : analysis_options()) {
    if (option.group == OptionGroup::capture || option.group == OptionGroup::statistics) continue;
    const auto refuses = [&](const std::string& value) {
      EXPECT_THAT(with(fmt::format("{}: {}", option.name, value)), HasSubstr(option.expected()))
          << value;
    };
    using enum OptionKind;
    if (option.kind == number)
      for (const auto* value : {".nan", ".inf", "-.inf", "1e400", "50", "1e300", "00"})
        refuses(value);
    if (option.kind == count)
      for (const auto* value : {".nan", "010", "-1", "1.5", "99999999999999999999999"})
        refuses(value);
    if (option.kind == counts || option.kind == layers)
      for (const auto* value : {"[010]", "[-1]", "[.nan]", "[99999999999999999999]"})
        refuses(value);
    if (option.kind == heads)
      for (const auto* value : {"[[1, 010]]", "[[1, -1]]", "[[1, 4294967296]]"}) refuses(value);
  }
  EXPECT_THAT(with("pca: false, rotation: false, plasticity: false, geometry: false"),
              HasSubstr("one of them is run"));
}

TEST_F(SweepFile, ComputeOptionsApplyToEveryRun) {
  const std::string text = std::string(kHead) +
                           "  inference: {autocast_dtype: float16}\n"
                           "compute: {device: cuda, dtype: bf16, device_memory: 8GiB, "
                           "batch_tokens: 100, deterministic: true}\nruns: [{label: a}]\n";
  const auto sweep = read(text);
  EXPECT_EQ(sweep.compute.device, "cuda");
  EXPECT_EQ(sweep.compute.device_memory, std::int64_t{8} << 30);
  EXPECT_EQ(sweep.compute.batch_tokens, 100);
  EXPECT_TRUE(sweep.compute.deterministic);
  EXPECT_EQ(sweep.runs[0].capture.model.dtype, DType::bf16);
  EXPECT_FALSE(sweep.runs[0].capture.inference.autocast_dtype);
  write_text(path(), text);
  ComputeOptions typed;
  typed.device = "cpu";
  typed.dtype = DType::f32;
  typed.device_memory = 5;
  const auto other =
      read_sweep_config({.file = path(), .overrides = {}, .data_folder = "", .compute = typed});
  EXPECT_EQ(other.compute.device, "cpu");
  EXPECT_EQ(other.compute.device_memory, 5);
  EXPECT_EQ(other.compute.batch_tokens, 100);
  EXPECT_EQ(other.runs[0].capture.model.dtype, DType::f32);
}

TEST_F(SweepFile, ComputeOptionsAreChecked) {
  const auto with = [&](const std::string& compute) {
    return complaint(std::string(kHead) + "compute: {" + compute + "}\nruns: [{label: a}]\n");
  };
  EXPECT_EQ(with("dtype: int8"),
            "sweep.yaml:5: compute.dtype: found \"int8\", expected float32, float16 or bfloat16");
  EXPECT_EQ(with("device_memory: much"),
            "sweep.yaml:5: compute.device_memory: found \"much\", expected a size like 8GiB");
  EXPECT_THAT(with("batch_tokens: 0"), HasSubstr("compute.batch_tokens"));
  EXPECT_THAT(with("devise: cpu"), HasSubstr("did you mean compute.device?"));
}

TEST_F(SweepFile, EachRunIsPublishedToItsOwnBranch) {
  const std::string runs = "runs: [{label: a, phase: p}, {label: b, phase: p}]\n";
  EXPECT_FALSE(read(kHead + runs).runs[0].publish);
  const auto plain = read(kHead + std::string("publish: {repo: org/x, private: true}\n") + runs);
  EXPECT_EQ(plain.runs[1].publish->repo, "org/x");
  EXPECT_EQ(plain.runs[1].publish->branch, "b");
  EXPECT_TRUE(plain.runs[1].publish->private_repo);
  const auto pattern = read(
      kHead + std::string("publish: {repo: org/x, branch: '{name}-{phase}-{label}-v1'}\n") + runs);
  EXPECT_EQ(pattern.runs[0].publish->branch, "s-p-a-v1");
  const auto of_others = read("name: s\npublish: {}\nruns: [{label: a, data: org/captures@one}]\n");
  EXPECT_FALSE(of_others.runs[0].publish);  // it is published where it is
  const std::string own = "  output: {hf_repo_id: me/own, private: true}\npublish: {}\n";
  const auto from_config = read(kHead + own + runs);
  EXPECT_EQ(from_config.runs[0].publish->repo, "me/own");
  EXPECT_EQ(from_config.runs[0].publish->branch, "a");
  EXPECT_TRUE(from_config.runs[0].publish->private_repo);
}

TEST_F(SweepFile, PublishTargetsAreChecked) {
  const auto with = [&](const std::string& publish) {
    return complaint(std::string(kHead) + "publish: {" + publish +
                     "}\nruns: [{label: a, phase: long context}, {label: b}]\n");
  };
  EXPECT_THAT(with("repo: a/b/c"), HasSubstr("publish.repo: found \"a/b/c\", expected the name"));
  EXPECT_THAT(with(""), HasSubstr("run a has no output.hf_repo_id"));
  EXPECT_THAT(with("repo: o/x, branch: all"),
              HasSubstr("runs a and b would both go to the branch all of o/x"));
  EXPECT_THAT(with("repo: o/x, branch: '{phase}'"), HasSubstr("which is not the name of a branch"));
  EXPECT_THAT(with("repo: o/x, branch: '{lable}'"), HasSubstr("a pattern with {label}"));
  EXPECT_THAT(with("repo: o/x, privat: true"), HasSubstr("did you mean publish.private?"));
}

TEST_F(SweepFile, InstalledSweepFilesAreValid) {
  const std::string configs = source_path("configs/");
  const auto training = read_sweep_config({configs + "sweeps/smollm3-training.yaml", {}, ""});
  ASSERT_EQ(training.runs.size(), 10u);
  for (const auto& run : training.runs)
    EXPECT_EQ(run.capture.tokenizer.max_length, 16 * run.capture.capture.sampler.min_bucket_size);
  EXPECT_EQ(training.runs.front().capture.model.revision, "stage1-step-40000");
  EXPECT_EQ(training.runs.back().capture.tokenizer.max_length, 65536);
  // The labels are the names of the published models, so that `compare` finds them.
  const auto models = read_sweep_config({configs + "sweeps/attention-plasticity.yaml", {}, ""});
  ASSERT_EQ(models.runs.size(), 13u);
  const auto published = read_published_numbers("models");
  for (const auto& run : models.runs)
    EXPECT_TRUE(std::any_of(published.numbers.begin(), published.numbers.end(),
                            [&](const PublishedNumber& number) {
                              return number.model == run.label && number.metric == "hub_model" &&
                                     number.text == run.capture.model.name;
                            }))
        << run.label;
  const auto captured = read_sweep_config({configs + "sweeps/smollm3-published.yaml", {}, ""});
  ASSERT_EQ(captured.runs.size(), training.runs.size());
  for (std::size_t i = 0; i < captured.runs.size(); ++i) {
    const auto& run = captured.runs[i];
    const auto& capture = training.runs[i].capture;
    EXPECT_EQ(run.label, training.runs[i].label);
    EXPECT_EQ(run.data, *capture.output.hf_repo_id + "@" + *capture.output.hf_branch);
    EXPECT_EQ(run.model, capture.model.name + "@" + *capture.model.revision);
  }
  const auto demo = read_sweep_config({configs + "demo/sweep.yaml", {}, ""});
  ASSERT_EQ(demo.runs.size(), 10u);
  for (const auto& run : demo.runs)
    EXPECT_EQ(run.capture.tokenizer.max_length, 16 * run.capture.capture.sampler.min_bucket_size);
  const auto real = read_sweep_config({configs + "demo-real/sampled-and-exact.yaml", {}, ""});
  ASSERT_EQ(real.runs.size(), 1u);
  EXPECT_TRUE(real.runs[0].captures && real.runs[0].statistics);
}

}  // namespace
}  // namespace qkscope
