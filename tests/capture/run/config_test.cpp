// The YAML configuration: keys, types, ranges, overrides and error messages.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "base/core/error.h"
#include "capture/format/manifest.h"
#include "capture/run/capture_plan.h"
#include "capture_fixture.h"
#include "paths.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

constexpr char kSmallest[] = "dataset: {path: d.jsonl}\nmodel: {name: m}\n";

class ConfigFile : public testing::Test {
 protected:
  CaptureConfig read(const std::string& text, const std::vector<std::string>& overrides = {}) {
    write_text(path(), text);
    return read_capture_config(path(), overrides);
  }
  std::string path() const { return folder_.file("run.yaml"); }

  std::string complaint(const std::string& text, const std::vector<std::string>& overrides = {}) {
    try {
      read(text, overrides);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      return error.what();
    }
    return "accepted";
  }

  TemporaryFolder folder_;
};

TEST_F(ConfigFile, HasTheDocumentedDefaults) {
  const auto config = read(kSmallest);
  EXPECT_EQ(config.dataset.split, "train");
  EXPECT_EQ(config.dataset.text_column, "text");
  EXPECT_FALSE(config.dataset.id_column);
  EXPECT_FALSE(config.dataset.max_samples);
  EXPECT_EQ(config.model.dtype, DType::f16);
  EXPECT_EQ(config.tokenizer.name, "m");
  EXPECT_EQ(config.tokenizer.max_length, 4096);
  EXPECT_EQ(config.inference.batch_size, 1);
  EXPECT_TRUE(config.capture.queries && config.capture.keys);
  EXPECT_FALSE(config.capture.heads.sampling);
  EXPECT_EQ(config.capture.sampler.type, SamplerType::log_uniform);
  EXPECT_EQ(config.capture.sampler.base_rate, 1.0);
  EXPECT_EQ(config.capture.sampler.min_bucket_size, 128);
  EXPECT_EQ(config.output.data_root, "data");
  EXPECT_EQ(config.output.write_batch_size, 4096);
  EXPECT_FALSE(config.output.assemble_ahead.has_value());
}

TEST_F(ConfigFile, ReadsEveryKey) {
  const auto config = read(
      "dataset:\n  path: p\n  name: n\n  split: test\n  text_column: t\n  id_column: i\n"
      "  max_samples: 7\n  streaming: true\n"
      "model:\n  name: m\n  revision: r\n  dtype: bf16\n  device_map: cuda:1\n"
      "  trust_remote_code: false\n  attn_implementation: sdpa\n"
      "  config_overrides: {rope_scaling: {rope_type: yarn, factor: 4.0}, flag: true, s: '4'}\n"
      "tokenizer: {name: tk, max_length: 99, padding: longest, padding_side: right,\n"
      "            trust_remote_code: true}\n"
      "inference: {batch_size: 3, autocast_dtype: fp32, debug_logging: true,\n"
      "            debug_log_every_n_batches: 5}\n"
      "capture:\n  capture_queries: false\n  capture_keys: true\n  layers: [1, 3]\n  heads: [0]\n"
      "  head_sampling: {count: 4, seed: -2}\n  full_attention_only: true\n"
      "  sampler: {type: uniform, base_rate: 0.5}\n  min_bucket_size: 64\n"
      "  max_rows_per_batch: 10\n  capture_pre_rope: true\n  capture_token_strings: true\n"
      "output: {data_root: o, readme_path: README.md, hf_repo_id: a/b, hf_branch: c,\n"
      "         private: true, write_batch_size: 512, assemble_ahead: false}\n");
  EXPECT_EQ(config.dataset.name, "n");
  EXPECT_EQ(config.dataset.max_samples, 7);
  EXPECT_EQ(config.model.revision, "r");
  EXPECT_EQ(config.model.dtype, DType::bf16);
  EXPECT_EQ(config.model.device_map, "cuda:1");
  EXPECT_EQ(
      config_overrides(config.model),
      (Json{
          {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}, {"flag", true}, {"s", "4"}}));
  EXPECT_EQ(config.tokenizer.name, "tk");
  EXPECT_EQ(config.inference.autocast_dtype, DType::f32);
  EXPECT_TRUE(config.inference.debug_logging);
  EXPECT_EQ(config.inference.debug_log_every_n_batches, 5);
  EXPECT_FALSE(config.capture.queries);
  EXPECT_EQ(config.capture.heads.layers, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(config.capture.heads.sampling->seed, -2);
  EXPECT_EQ(config.capture.sampler.type, SamplerType::uniform);
  EXPECT_EQ(config.capture.sampler.max_rows, 10);
  EXPECT_TRUE(config.capture.pre_rope && config.capture.token_strings);
  EXPECT_EQ(config.output.hf_branch, "c");
  EXPECT_TRUE(config.output.private_repo);
  EXPECT_EQ(config.output.write_batch_size, 512);
  EXPECT_EQ(config.output.assemble_ahead, false);
}

TEST_F(ConfigFile, NamesUnknownKeysWithLineAndSuggestion) {
  EXPECT_THAT(complaint(std::string(kSmallest) + "capture:\n  min_bucket_sise: 4\n"),
              HasSubstr("run.yaml:4: capture.min_bucket_sise: there is no such key; did you mean "
                        "capture.min_bucket_size?"));
  EXPECT_THAT(complaint(std::string(kSmallest) + "captur: {}\n"),
              HasSubstr("run.yaml:3: captur: there is no such key; did you mean capture?"));
  EXPECT_THAT(complaint(std::string(kSmallest) + "capture: {sampler: {typ: all}}\n"),
              HasSubstr("capture.sampler.typ"));
  EXPECT_THAT(complaint(kSmallest, {"output.dataroot=x"}),
              HasSubstr("--set output.dataroot: there is no such key; did you mean "
                        "output.data_root?"));
}

TEST_F(ConfigFile, MisspeltRequiredKeysNameLineAndNearestKey) {
  EXPECT_THAT(complaint("dataset: {path: d.jsonl}\nmodle:\n  name: m\n"),
              HasSubstr("run.yaml:2: modle: there is no such key; did you mean model?"));
  EXPECT_THAT(
      complaint("dataset:\n  pth: d.jsonl\nmodel: {name: m}\n"),
      HasSubstr("run.yaml:2: dataset.pth: there is no such key; did you mean dataset.path?"));
  EXPECT_THAT(complaint("dataset: {path: d.jsonl}\nmodel:\n  dtype: bf16\n"),
              HasSubstr("run.yaml: model.name is missing: expected a string"));
  EXPECT_THAT(complaint("dataset: {path: d.jsonl}\nmodel:\n"), HasSubstr("model.name is missing"));
}

TEST_F(ConfigFile, IgnoresRetiredInferenceKeys) {
  const auto config = read(std::string(kSmallest) +
                           "inference: {distributed: true, backend: nccl,\n"
                           "            mps_cleanup_every_batches: 4, batch_size: 2}\n");
  EXPECT_EQ(config.inference.batch_size, 2);
  EXPECT_THAT(complaint(std::string(kSmallest) + "inference: {bakend: x}\n"),
              HasSubstr("inference.bakend"));
}

TEST_F(ConfigFile, OverridesReplaceAndAddKeys) {
  const auto config = read(kSmallest, {"capture.min_bucket_size=256", "capture.layers=[0, 2]",
                                       "model.config_overrides.rope_scaling.factor=4.0",
                                       "capture.head_sampling.count=3", "dataset.path=a=b.txt"});
  EXPECT_EQ(config.capture.sampler.min_bucket_size, 256);
  EXPECT_EQ(config.capture.heads.layers, (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(config_overrides(config.model)["rope_scaling"]["factor"], 4.0);
  EXPECT_EQ(config.capture.heads.sampling->count, 3);
  EXPECT_EQ(config.dataset.path, "a=b.txt");
  EXPECT_THAT(complaint(kSmallest, {"capture.min_bucket_size"}), HasSubstr("expected KEY=VALUE"));
  EXPECT_THAT(complaint(kSmallest, {"model.config_overrides.rope_theta=.inf"}),
              HasSubstr("expected a finite number"));
  EXPECT_THAT(complaint(kSmallest, {"dataset.path.x=1"}), HasSubstr("dataset.path is not a map"));
}

struct Mistake {
  std::string lines;
  std::string message;  // substring of the error
};

TEST_F(ConfigFile, NamesEveryMistake) {
  const std::vector<Mistake> mistakes = {
      {"tokenizer: {max_length: many}", "found \"many\", expected a whole number from 1"},
      {"tokenizer: {chunk: 0}", "tokenizer.chunk: found \"0\", expected a whole number"},
      {"tokenizer: {chunk: -5}", "expected a whole number from 1 on"},
      {"tokenizer: {chunk: 64, max_length: 32}", "at most tokenizer.max_length, 32"},
      {"tokenizer: {chunk: 64, chunk_overlap: 64}", "an overlap below the size"},
      {"tokenizer: {chunk: 64, chunk_overlap: -1}", "tokenizer.chunk_overlap: found"},
      {"tokenizer: {chunk: 64, chunk_min: 65}", "a least length from 1 to the size"},
      {"tokenizer: {chunk_min: 8}", "chunks of 0 tokens"},
      {"tokenizer: {max_length: 0}", "expected a whole number from 1 on"},
      {"tokenizer: {padding_side: left}", "tokenizer.padding_side: found \"left\""},
      {"tokenizer: {max_length: 010}", "found \"010\", expected a whole number"},
      {"tokenizer: {max_length: 9000000000000000000}", "at most 1099511627776"},
      {"tokenizer: {max_length: 99999999999999999999}", "expected a whole number from 1"},
      {"capture: {layers: [1, 010]}", "found \"010\" in the list"},
      {"capture: {heads: [[1, 02]]}", "expected pairs [layer, head] only"},
      {"capture: {sampler: {base_rate: 010}}", "without leading zeros"},
      {"tokenizer: {max_length: 8}\n---\ntokenizer: {max_length: 9}", "a second YAML document"},
      {"inference: {batch_size: -1}", "run.yaml:3: inference.batch_size"},
      {"inference: {autocast_dtype: int8}", "expected float16, fp16"},
      {"capture: {sampler: {type: random}}", "expected log_uniform, uniform or all"},
      {"capture: {sampler: {base_rate: 0}}", "expected a number above 0"},
      {"capture: {sampler: {base_rate: .nan}}", "expected a number above 0"},
      {"capture: {min_bucket_size: 1.5}", "expected a whole number"},
      {"capture: {layers: 3}", "expected a list of whole numbers"},
      {"capture: {layers: [a]}", "found \"a\" in the list"},
      {"capture: {heads: []}", "expected at least one entry"},
      {"capture: {heads: [[1, 2], 3]}", "expected pairs [layer, head] only"},
      {"capture: {heads: [[1, 2, 3]]}", "expected pairs [layer, head] only"},
      {"capture: {layers: [1], heads: [[1, 2]]}", "expected null where heads are pairs"},
      {"capture: {head_sampling: {seed: 1}}", "capture.head_sampling.count is missing"},
      {"capture: {head_sampling: 300}", "expected a map"},
      {"capture: {capture_queries: false, capture_keys: false}", "one of them"},
      {"capture: {capture_pre_rope: maybe}", "expected true or false"},
      {"output: {write_batch_size: 0}", "output.write_batch_size"},
      {"output: {data_root: ''}", "expected a folder"},
      {"output: [a]", "found a list, expected a map"},
      {"capture: {layers: [1], layers: [2]}", "capture.layers: the key is there twice"},
      {"capture: {", "not YAML"},
      {"  bad: indent: here", "run.yaml:3: not YAML"}};
  for (const auto& [lines, message] : mistakes) {
    EXPECT_THAT(complaint(kSmallest + lines), HasSubstr(message)) << lines;
  }
}

TEST_F(ConfigFile, ReplacesInvalidUtf8WhenConfigured) {
  EXPECT_FALSE(read(kSmallest).dataset.replace_invalid);
  EXPECT_FALSE(read(kSmallest, {"dataset.errors=strict"}).dataset.replace_invalid);
  EXPECT_TRUE(read(kSmallest, {"dataset.errors=replace"}).dataset.replace_invalid);
  EXPECT_THAT(complaint(kSmallest, {"dataset.errors=maybe"}), HasSubstr("strict or replace"));
}

// Each map refers twice to the previous one: 2^30 values in thirty lines.
TEST_F(ConfigFile, RefusesExponentialYamlAliases) {
  std::string maps = "{m0: &m0 {k: v, l: w}";
  for (int i = 1; i < 30; ++i)
    maps += fmt::format(", m{0}: &m{0} {{k: *m{1}, l: *m{1}}}", i, i - 1);
  EXPECT_THAT(complaint("dataset: {path: d}\nmodel: {name: m, config_overrides: " + maps + "}}\n"),
              HasSubstr("aliases stand for more than"));
}

TEST_F(ConfigFile, NamesMissingRequiredKeys) {
  EXPECT_THAT(complaint("model: {name: m}\n"), HasSubstr("dataset.path is missing"));
  EXPECT_THAT(complaint("dataset: {path: d}\nmodel: {name: }\n"), HasSubstr("model.name"));
  EXPECT_THAT(complaint(""), HasSubstr("dataset.path is missing"));
  EXPECT_THAT(complaint("- a\n"), HasSubstr("expected a map of keys and values"));
  EXPECT_THAT(complaint("dataset: {path: d}\nmodel: {name: m, device_map: tpu}\n"),
              HasSubstr("expected auto, cpu, cuda, cuda:N or null"));
  EXPECT_THAT(complaint("dataset: {path: d}\nmodel: {name: m, dtype: int4}\n"),
              HasSubstr("model.dtype: found \"int4\""));
  EXPECT_THROW(read_capture_config(folder_.file("none.yaml")), Error);
}

TEST_F(ConfigFile, HashDependsOnlyOnSettingsThatChangeTheResult) {
  const auto hash = [&](const std::vector<std::string>& overrides) {
    return config_hash(effective_config(read(kSmallest, overrides)));
  };
  const auto plain = hash({});
  EXPECT_EQ(plain.size(), 16u);
  EXPECT_EQ(hash({"inference.batch_size=8"}), plain);
  EXPECT_EQ(hash({"output.data_root=x", "output.hf_branch=b"}), plain);
  EXPECT_EQ(hash({"capture.min_bucket_size=128"}), plain);
  EXPECT_NE(hash({"capture.min_bucket_size=64"}), plain);
  EXPECT_NE(hash({"model.revision=v2"}), plain);
  EXPECT_NE(hash({"dataset.max_samples=3"}), plain);
  EXPECT_EQ(plain, "67e90c70741da347");  // captures of earlier versions resume
  const auto chunked = hash({"tokenizer.chunk=4096"});
  EXPECT_NE(chunked, plain);
  EXPECT_EQ(hash({"tokenizer.chunk=4096", "tokenizer.max_length=8192", "tokenizer.chunk_overlap=0",
                  "tokenizer.chunk_min=1"}),
            chunked);
  EXPECT_NE(hash({"tokenizer.chunk=4096", "tokenizer.chunk_min=2"}), chunked);
  EXPECT_NE(hash({"tokenizer.chunk=4096", "tokenizer.chunk_overlap=2"}), chunked);
}

TEST(SampleConfig, HasTheKeysOfQkSniffer) {
  const auto config = read_capture_config(source_path("configs/sample.yaml"));
  EXPECT_EQ(config.model.name, "HuggingFaceTB/SmolLM2-135M");
  EXPECT_EQ(config.tokenizer.max_length, 512);
  EXPECT_EQ(config.capture.sampler.type, SamplerType::uniform);
  EXPECT_EQ(config.capture.sampler.min_bucket_size, 32);
  EXPECT_EQ(config.output.hf_branch, "smollm2-135m-longbench-pro-128k-plus");
}

TEST(ProductionConfigs, MatchTheSweepConfigurations) {
  namespace fs = std::filesystem;
  const fs::path root = source_path("configs/attention-plasticity");
  int count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().string());
    const auto config = read_capture_config(entry.path().string());
    const bool stage = entry.path().parent_path() != root;
    EXPECT_EQ(config.dataset.path, "viktoroo/longbench-pro-128k-plus");
    EXPECT_EQ(config.dataset.split, "test");
    EXPECT_EQ(config.dataset.id_column, "id");
    EXPECT_EQ(config.capture.heads.sampling->count, 300);
    EXPECT_EQ(config.capture.heads.sampling->seed, 0);
    EXPECT_TRUE(config.capture.heads.full_attention_only);
    EXPECT_EQ(config.capture.sampler.type, SamplerType::uniform);
    EXPECT_EQ(config.capture.sampler.base_rate, 1.0);
    EXPECT_EQ(config.capture.sampler.min_bucket_size,
              stage ? config.tokenizer.max_length / 16 : 8192);
    EXPECT_FALSE(config.capture.pre_rope);
    EXPECT_EQ(config.model.dtype, DType::bf16);
    EXPECT_EQ(config.model.config_overrides.empty(), !config.model.name.starts_with("Qwen/"));
    EXPECT_EQ(config.model.revision, stage ? entry.path().stem().string() : "main");
    EXPECT_TRUE(config.output.hf_branch->ends_with("-longbench-pro-128k-plus"));
    ++count;
  }
  EXPECT_EQ(count, 23);
}

}  // namespace
}  // namespace qkscope
