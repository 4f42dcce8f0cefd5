#include <gmock/gmock.h>

#include "base/io/json.h"
#include "paths.h"
#include "run_program.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

const std::string kGolden = source_path("tests/golden/");

TEST(Inspect, DescribesACheckpoint) {
  const auto outcome = run_program("qkscope inspect " + kGolden + "smollm3_list --length 1000");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const auto* part :
       {"smollm3", "NoPE", "layers 1-2", "4 query, 2 key/value", "38 BF16", "for 1000 tokens"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
}

TEST(Inspect, JsonListsEveryLayer) {
  const auto outcome = run_program("qkscope inspect " + kGolden + "gemma3_text --json");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const Json json = parse_json(outcome.out, "output");
  EXPECT_EQ(json["family"], "gemma3_text");
  EXPECT_EQ(json["layers"].size(), json["n_layers"].get<std::size_t>());
  EXPECT_EQ(json["layers"][0]["attention"], "sliding");
  EXPECT_TRUE(json["tensors"].contains("model.norm.weight"));
  EXPECT_GT(json["memory"]["activation_bytes"].get<std::int64_t>(), 0);
}

TEST(Inspect, DescribesLatentAttention) {
  const auto text = run_program("qkscope inspect " + kGolden + "deepseek_v3").out;
  for (const auto* part :
       {"latents     12 for keys and values, 20 for queries, values of dimension 8",
        "on 6 of 16 dimensions"})
    EXPECT_THAT(text, HasSubstr(part));
  const auto outcome = run_program("qkscope inspect " + kGolden + "deepseek_v3 --json");
  const Json json = parse_json(outcome.out, "output");
  EXPECT_EQ(json["latent_attention"]["kv_rank"], 12);
  EXPECT_EQ(json["layers"][0]["rope"]["begin"], 10);
}

TEST(Inspect, DescribesKimiDeltaAttention) {
  const auto outcome = run_program("qkscope inspect " + kGolden + "kimi_linear");
  for (const auto* part :
       {"layers 0-1: no attention, Kimi Delta Attention layer with 3 heads, state 12 x 12, one "
        "MLP\n",
        "layer 2: full attention, NoPE (no position embedding)\n",
        "layer 3: no attention, Kimi Delta Attention layer with 3 heads, state 12 x 12\n",
        "latents     12 for keys and values, values of dimension 8"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  const Json json =
      parse_json(run_program("qkscope inspect " + kGolden + "kimi_linear --json").out, "output");
  EXPECT_EQ(json["layers"][0]["mixer"], "kimi_delta");
  EXPECT_EQ(json["layers"][2]["rope"], "none");
}

TEST(Inspect, DescribesHeadsThatDifferByLayer) {
  const auto text = run_program("qkscope inspect " + kGolden + "gemma4_text").out;
  for (const auto* part :
       {"layers 0, 2: sliding attention, window 16, RoPE default theta 10000 on 8 of 8 "
        "dimensions\n",
        "layers 1, 3: full attention, RoPE proportional theta 1e+06 on 4 of 16 dimensions, 1 "
        "key/value heads of dimension 16, values from W_K\n",
        "on 8 of 8 dimensions, keys and values of layer 2, MLP 64\n", "keys and values of layer 3",
        "inputs      8 for each token and layer"})
    EXPECT_THAT(text, HasSubstr(part));
  const auto outcome = run_program("qkscope inspect " + kGolden + "gemma4_text --json");
  const Json json = parse_json(outcome.out, "output");
  EXPECT_EQ(json["per_layer_input"], 8);
  EXPECT_EQ(json["layers"][5]["d_head"], 16);
  EXPECT_EQ(json["layers"][5]["n_kv_heads"], 1);
  EXPECT_EQ(json["layers"][5]["kv_layer"], 3);
  EXPECT_EQ(json["layers"][5]["d_mlp"], 64);
  EXPECT_EQ(json["layers"][1]["rope"]["rotated_pairs"], 2);
}

TEST(Inspect, MissingGgufFilesAreNotLookedUpOnTheHub) {
  for (const auto* name : {"missing.gguf", "models/missing.gguf", "/no/such/missing.gguf"}) {
    const auto outcome = run_program(std::string("qkscope inspect ") + name);
    EXPECT_EQ(outcome.status, 2) << name;
    EXPECT_EQ(outcome.err, std::string("error: ") + name + ": the file does not exist\n");
  }
}

TEST(Inspect, PrintsTheMemoryOfGgufBlocks) {
  const auto outcome = run_program("qkscope inspect " + kGolden + "gguf_llama/model.gguf");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const auto* part : {"llama", "5 F32", "Q4_0", "of them as float32"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  const Json json =
      parse_json(run_program("qkscope inspect " + kGolden + "gguf_llama --json").out, "output");
  EXPECT_GT(json["memory"]["widened_bytes"], json["memory"]["weight_bytes"]);
}

TEST(Inspect, TensorsOptionListsEveryTensor) {
  EXPECT_THAT(run_program("qkscope inspect " + kGolden + "glm --tensors").out,
              HasSubstr("mlp.gate_up_proj.weight ["));
}

TEST(Inspect, BadFoldersAreRefused) {
  const auto missing = run_program("qkscope inspect no/such/folder");
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("no/such/folder"));
  const TemporaryFolder empty;
  const auto nothing = run_program("qkscope inspect " + empty.path());
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.err, HasSubstr("config.json"));
}

}  // namespace
}  // namespace qkscope
