#include <filesystem>

#include <gmock/gmock.h>

#include "base/io/json.h"
#include "base/io/output_file.h"
#include "input/checkpoint/safetensors.h"
#include "paths.h"
#include "qkscope/tokenizer.h"
#include "run_program.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

const std::string kModel = source_path("tests/golden/smollm3_list");

// Runs `qkscope trace` and opens the written file.
class Trace : public testing::Test {
 protected:
  Outcome run(const std::string& options) {
    const bool chosen = options.find("--device ") != std::string::npos;
    return run_program("qkscope trace --model " + kModel + " --out " + file() +
                       (chosen ? " " : " --device cpu ") + options);
  }
  std::string file() const { return folder_.file("trace.safetensors"); }
  Shape shape(const std::string& name) const {
    return SafetensorsFile(file()).tensor(name).shape();
  }

  TemporaryFolder folder_;
};

TEST_F(Trace, GgufFilesHoldModelAndTokenizer) {
  const auto outcome =
      run_program("qkscope trace --model " + source_path("tests/golden/gguf_llama/model.gguf") +
                  " --device cpu --text 'a b' --hooks logits --out " + file());
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const SafetensorsFile stored(file());
  EXPECT_EQ(stored.tensor("logits").shape(), Shape({4, 96}));
  EXPECT_EQ(stored.header().metadata.at("token_texts"), R"(["<s>","a"," ","b"])");
}

TEST_F(Trace, StoresActivationsByHookName) {
  const auto outcome = run("--token-ids 1,2,3,4,5 --hooks 'blocks.*.attn.hook_rot_q,logits'");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("5 tokens, 5 tensors"));
  EXPECT_EQ(shape("blocks.3.attn.hook_rot_q"), Shape({5, 4, 8}));
  EXPECT_EQ(shape("logits"), Shape({5, 96}));
  EXPECT_EQ(SafetensorsFile(file()).header().tensors.size(), 7u);  // with token_ids and positions
}

TEST_F(Trace, StoresTokenIdsPositionsAndTexts) {
  ASSERT_EQ(run("--token-ids 1,2,3,4,5 --positions 1,-1 --hooks logits").status, 0);
  {
    const SafetensorsFile trace(file());
    const auto ids = trace.tensor("token_ids");
    EXPECT_EQ(ids.dtype(), DType::i32);
    EXPECT_EQ(std::vector<std::int32_t>(ids.data<std::int32_t>(), ids.data<std::int32_t>() + 5),
              (std::vector<std::int32_t>{1, 2, 3, 4, 5}));
    const auto positions = trace.tensor("positions");
    EXPECT_EQ(positions.data<std::int64_t>()[0], 1);
    EXPECT_EQ(positions.data<std::int64_t>()[1], 4);
    EXPECT_FALSE(trace.header().metadata.contains("tokens"));  // the checkpoint has no tokenizer
  }
  namespace fs = std::filesystem;
  fs::copy(kModel, folder_.file("model"), fs::copy_options::recursive);
  const auto gpt2 = source_path("tests/input/tokenizer/data/gpt2.json");
  fs::copy_file(gpt2, folder_.file("model/tokenizer.json"));
  const auto outcome = run_program("qkscope trace --model " + folder_.file("model") +
                                   " --device cpu --token-ids 1,2 --hooks logits --out " + file());
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto metadata = SafetensorsFile(file()).header().metadata;
  const auto tokenizer = Tokenizer::load(gpt2);
  EXPECT_EQ(Json::parse(metadata.at("tokens")),
            Json({tokenizer.token_string(1), tokenizer.token_string(2)}));
  EXPECT_EQ(Json::parse(metadata.at("token_texts")).size(), 2u);
}

TEST_F(Trace, PositionsSelectRowsAndQueries) {
  ASSERT_EQ(
      run("--token-ids 1,2,3,4,5 --hooks 'blocks.0.attn.hook_k,blocks.0.attn.hook_pattern'").status,
      0);
  const auto all = [&] {
    const SafetensorsFile trace(file());
    const float* values = trace.tensor("blocks.0.attn.hook_k").data<float>();
    return std::vector<float>(values, values + trace.tensor("blocks.0.attn.hook_k").size());
  }();
  ASSERT_EQ(run("--token-ids 1,2,3,4,5 --positions 1,-1 --hooks "
                "'blocks.0.attn.hook_k,blocks.0.attn.hook_pattern'")
                .status,
            0);
  EXPECT_EQ(shape("blocks.0.attn.hook_k"), Shape({2, 2, 8}));
  EXPECT_EQ(shape("blocks.0.attn.hook_pattern"), Shape({4, 2, 5}));
  const SafetensorsFile chosen(file());
  const float* kept = chosen.tensor("blocks.0.attn.hook_k").data<float>();
  EXPECT_TRUE(std::equal(kept, kept + 16, all.begin() + 16));
  EXPECT_TRUE(std::equal(kept + 16, kept + 32, all.begin() + 64));
}

TEST_F(Trace, TokenIdsMayComeFromAJsonFile) {
  write_file(folder_.file("ids.json"), "{\"ids\": [7, 8, 9]}");
  EXPECT_EQ(run("--hooks hook_embed --token-ids " + folder_.file("ids.json")).status, 0);
  EXPECT_EQ(shape("hook_embed"), Shape({3, 32}));
}

TEST_F(Trace, ConfigurationOverridesChangeTheModel) {
  ASSERT_EQ(run("--token-ids 1,2,3 --hooks blocks.0.attn.hook_rot_q").status, 0);
  const std::string before(MappedFile(file()).text());
  ASSERT_EQ(run("--token-ids 1,2,3 --hooks blocks.0.attn.hook_rot_q --set rope_theta=100").status,
            0);
  EXPECT_NE(MappedFile(file()).text(), before);
}

TEST_F(Trace, BadInputWritesNothing) {
  const auto expect = [&](const std::string& options, const std::string& part) {
    const auto outcome = run(options);
    EXPECT_EQ(outcome.status, 2) << options;
    EXPECT_THAT(outcome.err, HasSubstr(part)) << options;
    EXPECT_FALSE(std::filesystem::exists(file())) << options;
  };
  expect("--token-ids 1,2 --hooks blocks.0.attn.hook_rotq",
         "did you mean 'blocks.0.attn.hook_rot_q'");
  expect("--token-ids 1,999 --hooks logits", "token id 999 at position 1");
  expect("--token-ids 1,,2 --hooks logits", "--token-ids");
  expect("--token-ids 1,-2 --hooks logits", "-2 is not a token id");
  expect("--token-ids no-such.json --hooks logits", "no-such.json");
  expect("--token-ids 1,2 --hooks logits --positions 2", "positions 0 to 1");
  expect("--token-ids 1,2 --hooks logits --positions 1:1", "names no position");
  expect("--token-ids 1,2 --hooks logits --positions x", "--positions");
  expect("--hooks logits", "--text");
  expect("--token-ids 1 --text hello --hooks logits", "--text");
  expect("--token-ids 1 --hooks logits --device tpu", "device: found 'tpu'");
  expect("--token-ids 1 --hooks logits --device cuda:99", "device cuda:99");
  expect("--token-ids 1 --hooks logits --dtype int8", "--dtype");
  expect("--token-ids 1 --hooks logits --device-memory lots", "--device-memory: found");
  expect("--token-ids 1 --hooks logits --set x", "KEY=VALUE");
  expect("--text hello --hooks logits", "tokenizer");
}

TEST_F(Trace, UnwritableOutputIsReported) {
  const auto outcome = run_program("qkscope trace --model " + kModel +
                                   " --device cpu --token-ids 1 --hooks logits --out "
                                   "/no/such/x.safetensors");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("/no/such"));
}

}  // namespace
}  // namespace qkscope
