// inspect_checkpoint on a configuration alone, with an index of shards, and with weights.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <tuple>

#include <gtest/gtest.h>

#include "base/io/json.h"
#include "base/io/output_file.h"
#include "engine/model/loaded_checkpoint.h"
#include "error_message.h"
#include "input/checkpoint/checkpoint.h"
#include "paths.h"
#include "qkscope/model.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

constexpr const char* kLlama = R"({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 4,
  "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 6, "vocab_size": 5,
  "tie_word_embeddings": true})";

class InspectCheckpoint : public testing::Test {
 protected:
  InspectCheckpoint() { write_file(folder_.file("config.json"), kLlama); }

  std::vector<TensorSpec> table() const {
    return expected_tensors(read_model_config(folder_.path()));
  }

  TemporaryFolder folder_;
};

TEST_F(InspectCheckpoint, ReadsAFolderWithOnlyAConfig) {
  const auto info = inspect_checkpoint(folder_.path());
  EXPECT_EQ(info.config.family, "llama");
  EXPECT_EQ(info.config.d_head, 2);
  EXPECT_FALSE(info.has_weights);
  EXPECT_TRUE(info.tensors.empty());
  EXPECT_EQ(info.indexed_tensors, 0);
  // embedding 20, norms 3 x 4, q and o 16 each, k and v 8 each, MLP 3 x 24
  EXPECT_EQ(parameter_count(info.config), 20 + 12 + 32 + 16 + 72);
}

TEST_F(InspectCheckpoint, ChecksTensorNamesOfAnIndex) {
  std::string entries;
  for (const auto& spec : table())
    entries += (entries.empty() ? "\"model." : ", \"model.") + spec.name + "\": \"a.safetensors\"";
  write_file(folder_.file(kWeightFormats[0].index), R"({"weight_map": {)" + entries + "}}");
  const auto info = inspect_checkpoint(folder_.path());
  EXPECT_FALSE(info.has_weights);
  EXPECT_EQ(info.indexed_tensors, std::ssize(table()));

  write_file(folder_.file(kWeightFormats[0].index),
             R"({"weight_map": {"model.norm.weight": "a.safetensors"}})");
  const auto message = bad_input_message([&] { inspect_checkpoint(folder_.path()); });
  EXPECT_NE(message.find("missing tensor model.embed_tokens.weight"), std::string::npos) << message;
}

TEST_F(InspectCheckpoint, ListsAndChecksWeights) {
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  for (const auto& spec : table()) {
    tensors.emplace_back(spec.shape, DType::bf16);
    std::fill_n(tensors.back().data<Bf16>(), tensors.back().size(), Bf16{});
    named.push_back({"model." + spec.name, tensors.back().view()});
  }
  write_safetensors(folder_.file("model.safetensors"), named);
  const auto info = inspect_checkpoint(folder_.path());
  EXPECT_TRUE(info.has_weights);
  EXPECT_EQ(info.bytes, 2 * parameter_count(info.config));
  ASSERT_EQ(info.tensors.size(), named.size());
  EXPECT_EQ(info.tensors[0].name, "model.embed_tokens.weight");
  EXPECT_EQ(info.tensors[0].shape, (std::vector<std::int64_t>{5, 4}));
  EXPECT_EQ(info.tensors[0].stored_dtype, "BF16");
  EXPECT_EQ(info.tensors[0].file, "model.safetensors");

  named.pop_back();
  write_safetensors(folder_.file("model.safetensors"), named);
  EXPECT_NE(bad_input_message([&] { inspect_checkpoint(folder_.path()); }).find("missing tensor"),
            std::string::npos);
}

// Edits the header of a GGUF file: a tensor moves to a layer that does not exist, and the norm of
// two groups of 32 becomes one of 32 groups of two.
TEST(InspectGguf, MissingAndMisshapenTensorsOfMamba2AreNamed) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& found, const std::string& replacement) {
    std::ifstream file(source_path("tests/golden/gguf_granitehybrid/model.gguf"), std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const auto at = bytes.find(found);
    EXPECT_NE(at, std::string::npos);
    bytes.replace(at, found.size(), replacement);
    write_file(folder.file("model.gguf"), bytes);
    return bad_input_message([&] { inspect_checkpoint(folder.file("model.gguf")); });
  };
  const auto part_of = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  part_of(refusal("blk.0.ssm_d", "blk.9.ssm_d"), "missing tensor model.layers.0.mamba.D");
  part_of(refusal("blk.0.ffn_gate.", "blk.9.ffn_gate."),
          "missing tensor model.layers.0.mlp.gate_proj.weight");
  const std::string name = "blk.0.ssm_norm.weight", rank("\2\0\0\0", 4), zeros(7, '\0');
  part_of(
      refusal(name + rank + " " + zeros + "\2" + zeros, name + rank + "\2" + zeros + " " + zeros),
      "tensor model.layers.0.mamba.norm.weight has shape [32, 2], config.json asks for [64]");
}

// Converters split in_proj_qkvz of Qwen3-Next; missing parts have the names of Qwen3.5.
TEST(InspectGguf, MissingTensorsOfOtherMixersAreNamed) {
  const TemporaryFolder folder;
  for (const auto& [file, found, missing] :
       {std::tuple{"qwen3next", "blk.0.attn_gate.", "model.layers.0.linear_attn.in_proj_z.weight"},
        std::tuple{"qwen35", "blk.0.ssm_alpha.", "model.layers.0.linear_attn.in_proj_a.weight"},
        std::tuple{"kimi_linear", "blk.0.ssm_f_a.", "model.layers.0.self_attn.f_a_proj.weight"},
        std::tuple{"kimi_linear", "blk.1.ffn_up_exps.",
                   "model.layers.1.mlp.experts.up_proj.weight"},
        std::tuple{"gemma4", "blk.2.inp_gate.", "model.layers.2.per_layer_input_gate.weight"}}) {
    std::ifstream golden(source_path("tests/golden/gguf_") + file + "/model.gguf",
                         std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(golden), {}};
    const auto at = bytes.find(found);
    ASSERT_NE(at, std::string::npos) << found;
    bytes[at + 4] = '9';  // moves the tensor to a layer that does not exist
    write_file(folder.file("model.gguf"), bytes);
    const auto message = bad_input_message([&] { inspect_checkpoint(folder.file("model.gguf")); });
    EXPECT_NE(message.find(std::string("missing tensor ") + missing), std::string::npos) << message;
  }
}

// Block-scaled tensors are converted when a model runs, not on inspection.
TEST(InspectBlocks, ReportsTheirFloat32Bytes) {
  const auto gguf = inspect_checkpoint(source_path("tests/golden/gguf_qwen2/model.gguf"));
  EXPECT_EQ(gguf.config.family, "qwen2");
  EXPECT_TRUE(gguf.has_weights);
  EXPECT_EQ(gguf.config.stored_dtype, "float32");
  EXPECT_GT(gguf.widened_bytes, 3 * gguf.bytes);

  const auto scaled = inspect_checkpoint(source_path("tests/golden/qwen3_fp8_blocks"));
  EXPECT_EQ(scaled.config.fp8_block, (std::vector<std::int64_t>{20, 12}));
  const auto plain = inspect_checkpoint(source_path("tests/golden/qwen3"));
  EXPECT_EQ(plain.widened_bytes, 0u);
  EXPECT_GT(scaled.widened_bytes, scaled.bytes);
}

TEST(InspectBlocks, RejectsScalesOfTheWrongShape) {
  const TemporaryFolder folder;
  for (const auto* name : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(source_path("tests/golden/qwen3_fp8_blocks/") + name,
                               folder.file(name));
  auto config = load_json(folder.file("config.json"));
  config["quantization_config"]["weight_block_size"] = {10, 12};
  write_file(folder.file("config.json"), config.dump());
  const auto message = bad_input_message([&] { inspect_checkpoint(folder.path()); });
  EXPECT_NE(message.find("expected [5, 3]: a scale for each block of 10 x 12"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace qkscope
