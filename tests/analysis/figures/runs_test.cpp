// Display labels and model families of runs.
#include <gtest/gtest.h>

#include "analysis/figures/results.h"

namespace qkscope {
namespace {

TEST(RunNames, PathsAreShownByTheirLastComponent) {
  EXPECT_EQ(display_label("/home/me/captures/smollm3"), "smollm3");
  EXPECT_EQ(display_label("/home/me/captures/smollm3/"), "smollm3");
  EXPECT_EQ(display_label("./captures/smollm3"), "smollm3");
  EXPECT_EQ(display_label("captures/2026/smollm3"), "smollm3");
  EXPECT_EQ(display_label("/cache/hub/models--Qwen--Qwen3-4B/snapshots/0123abc"), "Qwen/Qwen3-4B");
}

TEST(RunNames, OtherLabelsAreUnchanged) {
  EXPECT_EQ(display_label("HuggingFaceTB/SmolLM3-3B"), "HuggingFaceTB/SmolLM3-3B");
  EXPECT_EQ(display_label("S1-40K"), "S1-40K");
  EXPECT_EQ(display_label("</b>text<br/></b>"), "</b>text<br/></b>");
  EXPECT_EQ(display_label("/"), "/");
}

TEST(RunNames, FamiliesIncludeTheVersion) {
  EXPECT_EQ(model_family("ministral3-8b"), "ministral3");
  EXPECT_EQ(model_family("mistralai/Ministral-3-14B-Base-2512"), "ministral3");
  EXPECT_EQ(model_family("qwen3-0.6b"), "qwen3");
  EXPECT_EQ(model_family("Qwen/Qwen3-14B"), "qwen3");
  EXPECT_EQ(model_family("llama3.2-11b"), "llama3.2");
  EXPECT_EQ(model_family("meta-llama/Llama-3.1-8B"), "llama3.1");
  EXPECT_EQ(model_family("mistral-v0.2-7b"), "mistral");
  EXPECT_EQ(model_family("HuggingFaceTB/SmolLM3-3B-checkpoints"), "smollm3");
}

TEST(RunNames, ParameterCountsAreNotVersions) {
  EXPECT_EQ(model_family("gemma-7b"), "gemma");
  EXPECT_EQ(model_family("pythia-1.4b"), "pythia");
  EXPECT_EQ(model_family("gpt2"), "gpt2");
  EXPECT_EQ(model_family("/models/llama-2-7b"), "llama2");
}

TEST(RunNames, TrainingStepsAreNotFamilies) {
  EXPECT_EQ(model_family("checkpoints/step-1000"), model_family("checkpoints/step-2000"));
  EXPECT_EQ(model_family("S1-40K"), "");
  EXPECT_EQ(model_family("checkpoints/LC2-1200"), "");
  EXPECT_EQ(model_family(""), "");
}

TEST(RunNames, SameModelIgnoresCaseAndDashes) {
  EXPECT_TRUE(is_same_model("Qwen/Qwen3-4B", "qwen3-4b"));
  EXPECT_TRUE(is_same_model("Ministral-3-14B", "ministral3-14b"));
  EXPECT_FALSE(is_same_model("qwen3-4b", "qwen3-8b"));
  EXPECT_FALSE(is_same_model("", ""));
}

}  // namespace
}  // namespace qkscope
