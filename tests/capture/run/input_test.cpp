// User errors: each gives exit code 2 and one line that names the file, field or row.
#include <gmock/gmock.h>

#include "capture_fixture.h"
#include "qkscope/captures.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

class CaptureInput : public CaptureFixture {
 protected:
  void expect_refused(const std::string& options, const std::string& message) {
    const auto outcome = capture("out", options);
    EXPECT_EQ(outcome.status, 2) << options;
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(file("out/_saver_state.json")));
    EXPECT_FALSE(std::filesystem::exists(file("out/l00h00q")));
  }
};

TEST_F(CaptureInput, Checkpoints) {
  expect_refused("--set model.name=" + file("none"), "none");
  std::filesystem::create_directories(file("broken"));
  std::filesystem::copy(tiny_checkpoint(), file("broken"));
  std::filesystem::resize_file(file("broken/model.safetensors"), 1000);
  expect_refused("--set model.name=" + file("broken"), "broken/model.safetensors");
  write_text(file("broken/config.json"), "{\"model_type\": \"bert\"}");
  expect_refused("--set model.name=" + file("broken"), "bert");
}

TEST_F(CaptureInput, Datasets) {
  expect_refused("--set dataset.path=" + file("none.jsonl"), "none.jsonl");
  expect_refused("--set dataset.text_column=body", "body");
  expect_refused("--set dataset.id_column=key", "key");
  write_text(file("empty.jsonl"), "");
  expect_refused("--set dataset.path=" + file("empty.jsonl"), "empty.jsonl");
  write_text(file("bytes.jsonl"),
             "{\"id\": 1, \"text\": \"good\"}\n{\"id\": 2, \"text\": \"\xff\"}\n");
  expect_refused("--set dataset.path=" + file("bytes.jsonl"), "bytes.jsonl");
  write_text(file("list.jsonl"), "[1, 2]\n");
  expect_refused("--set dataset.path=" + file("list.jsonl"), "list.jsonl");
}

TEST_F(CaptureInput, TokenizersAndFields) {
  expect_refused("--set tokenizer.name=" + file("none"), "none");
  expect_refused("--set capture.layers=[9]", "capture.layers: 9 is out of range");
  expect_refused("--set capture.heads=[4]", "capture.heads: 4 is out of range");
  expect_refused("--set model.config_overrides.num_hidden_layers=9",
                 "no_rope_layers has 4 entries, expected 9");
  expect_refused("--device cuda:99", "device cuda:99: ");
  expect_refused("--device tpu", "expected auto, cpu, cuda or cuda:N");
  expect_refused("--resume --overwrite", "exclude each other");
  expect_refused("--dtype int8", "--dtype: found 'int8', expected float32, float16 or bfloat16");
  expect_refused("--device-memory much",
                 "--device-memory: found 'much', expected a size like 8GiB");
  expect_refused("--shard 3/3", "--shard");
  expect_refused("--shard x", "--shard");
}

// The tokenizer does not know the dataset row, so the run adds it to the message.
TEST_F(CaptureInput, NamesTheRowOfATextThatCannotBeTokenized) {
  std::filesystem::create_directories(file("tokenizer"));
  auto tokenizer = Json::parse(MappedFile(tiny_checkpoint() + "/tokenizer.json").text());
  const Json gives_up = {{"type", "Split"},
                         {"pattern", {{"Regex", "(a+)+$|(a|aa)+b"}}},
                         {"behavior", "Isolated"},
                         {"invert", false}};
  tokenizer["pre_tokenizer"] = {{"type", "Sequence"},
                                {"pretokenizers", {gives_up, tokenizer["pre_tokenizer"]}}};
  write_text(file("tokenizer/tokenizer.json"), tokenizer.dump());
  write_text(file("texts.jsonl"), fmt::format("{{\"id\": \"x\", \"text\": \"good\"}}\n"
                                              "{{\"id\": \"y\", \"text\": \"{}c\"}}\n",
                                              std::string(5000, 'a')));
  const auto outcome = capture("out", fmt::format("--set tokenizer.name={} --set dataset.path={}",
                                                  file("tokenizer"), file("texts.jsonl")));
  if (outcome.err.find("has no PCRE2") != std::string::npos) GTEST_SKIP() << outcome.err;
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("texts.jsonl: row 1 (example \"y\") cannot be tokenized: "));
  EXPECT_FALSE(std::filesystem::exists(file("out/_saver_state.json")));
}

TEST_F(CaptureInput, Folders) {
  write_text(file("plain"), "a file");
  const auto outcome = run_program(fmt::format("sniff-qk --config {} --set output.data_root={}",
                                               file("run.yaml"), file("plain")));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("is a file, expected a folder"));
  std::filesystem::create_directories(file("foreign/l00h00q"));
  const auto foreign = capture("foreign");
  EXPECT_EQ(foreign.status, 2);
  EXPECT_THAT(foreign.err, HasSubstr("a file that qkscope did not write (l00h00q)"));
  EXPECT_EQ(capture("foreign", "--overwrite").status, 2);
  EXPECT_TRUE(std::filesystem::exists(file("foreign/l00h00q")));
  std::filesystem::create_directory(file("own"));
  write_text(file("own/README.md"), "notes of the user");
  EXPECT_THAT(capture("own").err, HasSubstr("did not write (README.md)"));
  EXPECT_EQ(MappedFile(file("own/README.md")).text(), "notes of the user");
  write_text(file("foreign/_saver_state.json"), "{\"model_name\": \"x\"}");
  EXPECT_THAT(capture("foreign").err, HasSubstr("another program made"));
}

TEST_F(CaptureInput, CommandLine) {
  const auto none = run_program("sniff-qk");
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("--config"));
  const auto missing = run_program("sniff-qk --config " + file("no.yaml"));
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("no.yaml"));
  EXPECT_EQ(run_program("sniff-qk --help").status, 0);
  EXPECT_THAT(run_program("sniff-qk --version").out, HasSubstr("qkscope"));
  EXPECT_EQ(run_program("sniff-qk --config " + file("run.yaml") + " --limit 0").status, 2);
}

TEST_F(CaptureInput, TextsWithoutTokensAndEmptyTexts) {
  write_text(file("docs.jsonl"),
             "{\"id\": 1, \"text\": \"\"}\n{\"id\": 2, \"text\": \"a stone\"}\n"
             "{\"id\": 3, \"text\": null}\n");
  const auto outcome = capture("out", "--set capture.sampler.type=all");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::int64_t rows = 0;
  const Json state = load_json(file("out/_saver_state.json"));
  for (const auto& [bucket, count] : state["bucket_counts"].items()) rows += count.get<int>();
  EXPECT_EQ(rows, 7 * 12);  // seven bytes, twelve heads
}

TEST_F(CaptureInput, StateFileHasTheKeysOfQkSniffer) {
  ASSERT_EQ(capture("plain", "--limit 1").status, 0);
  const Json plain = load_json(file("plain/_saver_state.json"))["model_metadata"];
  EXPECT_EQ(plain["attention_scope"], "all_attention");
  EXPECT_EQ(plain["dataset_repo"], "");
  EXPECT_EQ(plain["dataset_branch"], "");
  EXPECT_EQ(plain["dataset_name"], "");
  ASSERT_EQ(capture("full",
                    "--limit 1 --no-publish --set capture.full_attention_only=true --set "
                    "capture.sampler.type=log_uniform --set capture.min_bucket_size=20 --set "
                    "output.hf_repo_id=org/name --set output.hf_branch=one")
                .status,
            0);
  const Json full = load_json(file("full/_saver_state.json"))["model_metadata"];
  EXPECT_EQ(full["attention_scope"], "full_only");
  EXPECT_EQ(full["dataset_repo"], "org/name");
  EXPECT_EQ(full["dataset_branch"], "one");
  EXPECT_EQ(full["sampling_strategy"], "log");
  EXPECT_EQ(full["sampling_min_bucket_size"], 32);
  EXPECT_FALSE(full.contains("sampling_bucket_size"));
  ASSERT_EQ(capture("all", "--limit 1 --set capture.sampler.type=all").status, 0);
  EXPECT_EQ(index_capture(file("all")).sampler->type, SamplerType::all);
  EXPECT_EQ(index_capture(file("full")).sampler->min_bucket_size, 32);
}

}  // namespace
}  // namespace qkscope
