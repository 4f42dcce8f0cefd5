// Floating-point operations of a forward pass.
#include <gtest/gtest.h>

#include "capture/run/capture_plan.h"

namespace qkscope {
namespace {

ModelConfig two_layers() {
  ModelConfig model;
  model.d_model = 8;
  model.n_heads = 4;
  model.n_kv_heads = 2;
  model.d_head = 3;
  model.d_mlp = 16;
  model.layers.resize(2);
  return model;
}

constexpr double kAttention = 8 * (4 + 2 + 2 + 4) * 3;  // weights of q, k, v and o
constexpr double kMlp = 3 * 8 * 16;                     // weights of gate, up and down

// Two matrix products: four operations per query, key and head dimension.
double scores(double pairs) {
  return 4 * 4 * 3 * pairs;
}

TEST(ForwardFlop, CountsMatrixProductsAndAttendedPairs) {
  const auto model = two_layers();
  EXPECT_EQ(forward_flop(model, 5), 2 * (2 * 5 * (kAttention + kMlp) + scores(15)));
  EXPECT_EQ(forward_flop(model, 0), 0);
}

TEST(ForwardFlop, SlidingWindowsReduceAttendedPairs) {
  EXPECT_EQ(count_attended_pairs(5, 0), 15);
  EXPECT_EQ(count_attended_pairs(5, 2), 9);  // 1 + 2 + 2 + 2 + 2
  EXPECT_EQ(count_attended_pairs(5, 9), 15);
  EXPECT_EQ(count_attended_pairs(8, 0, 3), 15);  // 6 + 6 + 3
  EXPECT_EQ(count_attended_pairs(8, 2, 3), 13);  // 5 + 5 + 3
  auto model = two_layers();
  model.layers[1].window = 2;
  EXPECT_EQ(forward_flop(model, 5), 4 * 5 * (kAttention + kMlp) + scores(15) + scores(9));
}

TEST(ForwardFlop, CountsOnlyRoutedExperts) {
  auto model = two_layers();
  model.layers[0].experts = true;
  model.experts.count = 10;
  model.experts.per_token = 2;
  model.experts.d_mlp = 6;
  const double experts = 8 * 10 + 2 * 3 * 8 * 6;  // the router and two of ten experts
  EXPECT_EQ(forward_flop(model, 1), 2 * (2 * kAttention + experts + kMlp) + 2 * scores(1));
}

TEST(ForwardFlop, SkipsCrossAttentionLayers) {
  auto model = two_layers();
  model.layers[1].cross_attention = true;
  EXPECT_EQ(forward_flop(model, 1), 2 * (kAttention + kMlp) + scores(1));
}

// DeepSeek-V3: every product of latent attention, and heads of z that are narrower than those of q.
TEST(ForwardFlop, LatentAttentionCountsItsProducts) {
  ModelConfig model;
  model.n_layers = 1;
  model.layers.resize(1);
  model.d_model = 7;
  model.n_heads = model.n_kv_heads = 2;
  model.d_head = 5;
  model.latent = {.kv_rank = 4, .q_rank = 6, .d_value = 8, .d_shared = 2};
  const double weights = 7 * 6 + 6 * 10 + 7 * (4 + 2) + 4 * 2 * (3 + 8) + 2 * 8 * 7;
  EXPECT_EQ(forward_flop(model, 1), 2 * weights + 2 * 2 * (5 + 8));
}

// Kimi Linear: gates of the decay and of the output are products of two narrow matrices.
TEST(ForwardFlop, GatesOfLowRankCountTheirProducts) {
  ModelConfig model;
  model.n_layers = 1;
  model.layers.resize(1);
  model.layers[0].mixer = Mixer::kimi_delta;
  model.layers[0].mlp = false;
  model.d_model = 7;
  model.mixer = {
      .kind = Mixer::kimi_delta, .key_heads = 2, .value_heads = 2, .d_key = 3, .d_value = 3};
  const double weights = 7 * (4 * 6 + 2) + 2 * (7 * 3 + 3 * 6);  // q, k, v, o, b; both gates
  EXPECT_EQ(forward_flop(model, 1), 2 * weights + 8 * 6 * 3);
}

}  // namespace
}  // namespace qkscope
