// Statistics over every token on the CUDA backend, against the CPU and against a pass without them.
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>

#include <gtest/gtest.h>

#include "engine/forward/forward.h"
#include "golden_model.h"
#include "recorder.h"

namespace qkscope {
namespace {

constexpr std::int64_t kBuckets = 3;
constexpr std::int64_t kBucketSize = 60;

// Sums of every layer: queries, keys and values before rotation, queries and keys after it, and
// attention.
class CollectedStatistics : public LayerStatistics, public AttentionConsumer {
 public:
  CollectedStatistics(const ModelConfig& model, bool adds, AttentionRequest request = {})
      : model_(model), adds_(adds), request_(request) {
    request_.layout.window = 32;
    request_.layout.stream_first = 8;
    request_.layout.stream_last = 16;
    request_.bucket_size = kBucketSize;
    request_.buckets = kBuckets;
    request_.layout.replacements = std::ssize(request.replacements);
    request_.layout.kept_sets = std::ssize(request.kept);
  }

  bool accumulates_attention() const override { return true; }
  void collect_before_rotation(Backend& backend, std::int64_t layer) override {
    add(backend, ActivationBuffer::q, layer, true);
    add(backend, ActivationBuffer::k, layer, true);
    add(backend, ActivationBuffer::v, layer, false);
  }
  void collect_after_rotation(Backend& backend, std::int64_t layer) override {
    add(backend, ActivationBuffer::q, layer, false);
    add(backend, ActivationBuffer::k, layer, false);
  }
  void collect_after_attention(Backend& backend, std::int64_t) override {
    if (adds_) backend.add_attention_statistics(request_, *this);
  }
  void add(LayerAttentionSums part) override { attention.push_back(std::move(part)); }

  std::vector<LayerMoments> moments() const {
    std::vector<LayerMoments> all;
    for (const auto& sums : sums_) all.push_back(sums->moments);
    return all;
  }
  std::vector<LayerAttentionSums> attention;

 private:
  struct Sums : MomentConsumer {
    void add(const LayerMoments& part) override { merge_moments(moments, part); }
    void throw_non_finite(const NonFiniteLocation&) override {
      throw std::runtime_error("not finite");
    }
    MomentRequest request;
    std::vector<float> shift;
    LayerMoments moments;
  };

  void add(Backend& backend, ActivationBuffer buffer, std::int64_t layer, bool pairs) {
    if (!adds_) return;
    const auto rope = model_.layers[static_cast<std::size_t>(layer)].rope;
    auto sums = std::make_unique<Sums>();
    auto& shape = sums->request.shape;
    shape.heads = buffer == ActivationBuffer::q ? model_.n_heads : model_.n_kv_heads;
    shape.dim = model_.d_head;
    shape.pairs = pairs && rope >= 0 ? model_.ropes[static_cast<std::size_t>(rope)].dim / 2 : 0;
    shape.buckets = kBuckets;
    sums->request.first = 4;
    sums->request.bucket_size = kBucketSize;
    sums->request.interleaved = model_.rope_interleaved;
    sums->request.shift = &sums->shift;
    sums->moments = make_layer_moments(shape);
    backend.add_moments(buffer, sums->request, *sums);
    sums_.push_back(std::move(sums));
  }

  const ModelConfig& model_;
  bool adds_;
  AttentionRequest request_;
  std::vector<std::unique_ptr<Sums>> sums_;
};

// Few different tokens, so that some are equal.
Batch repeating_batch(const std::vector<std::int64_t>& lengths) {
  Batch batch;
  std::mt19937 generator(3);
  for (const auto length : lengths) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(length));
    for (auto& id : ids) id = static_cast<std::int32_t>(generator() % 19);
    batch.add(ids);
  }
  return batch;
}

// The largest difference, as a share of the largest number.
double relative(const std::vector<double>& found, const std::vector<double>& expected) {
  double difference = 0;
  double largest = 1e-300;
  EXPECT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    difference = std::max(difference, std::abs(found[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
    if (!std::isfinite(found[i])) return INFINITY;
  }
  return difference / largest;
}

class CudaStatistics : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  }
  static LoadedCheckpoint load() { return load_golden(GetParam()); }
  static std::unique_ptr<Backend> on_gpu(const LoadedCheckpoint& model, DType dtype) {
    return make_backend(model, {.device = {Device::Kind::cuda, 0}, .dtype = dtype});
  }
};

TEST_P(CudaStatistics, ChangeNoBitOfThePass) {
  const auto model = load();
  const auto batch = repeating_batch({150, 1, 37});
  const auto wanted = [](const std::string& name) {
    return name == "logits" || name.ends_with("hook_resid_post");
  };
  for (const auto dtype : {DType::bf16, DType::f16, DType::f32}) {
    const auto backend = on_gpu(model, dtype);
    Recorder with(wanted), without(wanted), plain(wanted);
    AttentionRequest request;
    request.layout.all_keys = true;
    CollectedStatistics all(model.config, true, request), none(model.config, false);
    forward(*backend, batch, with, all);
    forward(*backend, batch, without, none);
    forward(*backend, batch, plain);
    for (const auto* other : {&without, &plain})
      for (const auto& [name, tensor] : with.seen)
        EXPECT_EQ(std::memcmp(tensor.view().bytes(), other->seen.at(name).view().bytes(),
                              tensor.view().size_bytes()),
                  0)
            << name << " " << dtype_name(dtype);
  }
}

// In float32 the passes of both devices differ by 1e-5 or so.
TEST_P(CudaStatistics, AreThoseOfTheCpu) {
  const auto model = load();
  const auto batch = repeating_batch({150, 1, 37});
  const std::vector<KeyReplacement> replacements(1);
  KeptKeys ends;
  ends.first = 2;
  ends.last = 8;
  const std::vector<KeptKeys> kept = {ends};
  const auto gpu = on_gpu(model, DType::f32);
  const auto cpu = make_backend(model);
  const std::vector<std::int64_t> documents = {5, 6, 7};
  enum class Case { plain, other_keys, sampled_queries };
  for (const auto which : {Case::plain, Case::other_keys, Case::sampled_queries}) {
    AttentionRequest request;
    request.layout.all_keys = true;
    if (which == Case::other_keys) {
      request.replacements = replacements;
      request.kept = kept;
    }
    if (which == Case::sampled_queries) request.sample = {0.5, 7};
    request.documents = documents;
    Recorder nothing([](const std::string&) { return false; });
    CollectedStatistics found(model.config, true, request), expected(model.config, true, request);
    forward(*gpu, batch, nothing, found);
    forward(*cpu, batch, nothing, expected);
    const auto moments = found.moments(), of_cpu = expected.moments();
    ASSERT_EQ(moments.size(), of_cpu.size());
    for (std::size_t i = 0; i < moments.size(); ++i) {
      SCOPED_TRACE("buffer " + std::to_string(i));
      EXPECT_EQ(moments[i].body.n(), of_cpu[i].body.n());
      EXPECT_EQ(moments[i].first.n(), of_cpu[i].first.n());
      EXPECT_LT(relative(moments[i].body.mean, of_cpu[i].body.mean), 1e-4);
      EXPECT_LT(relative(moments[i].body.m2, of_cpu[i].body.m2), 1e-4);
      EXPECT_LT(relative(moments[i].first.m2, of_cpu[i].first.m2), 1e-4);
      EXPECT_LT(relative(moments[i].body.ct, of_cpu[i].body.ct), 1e-4);
      EXPECT_LT(relative(moments[i].body.m4, of_cpu[i].body.m4), 1e-4);
      EXPECT_LT(relative(moments[i].body.pair_abs, of_cpu[i].body.pair_abs), 1e-4);
      EXPECT_LT(relative(moments[i].buckets.m2, of_cpu[i].buckets.m2), 1e-4);
    }
    ASSERT_EQ(found.attention.size(), expected.attention.size());
    const AttentionColumnLayout layout{.window = 32, .all_keys = true};
    for (std::size_t i = 0; i < found.attention.size(); ++i) {
      SCOPED_TRACE("layer " + std::to_string(i));
      const auto& a = found.attention[i];
      const auto& b = expected.attention[i];
      ASSERT_EQ(a.columns, b.columns);
      for (std::int64_t column = 0; column < a.columns; ++column) {
        // How many keys hold a share can change by one with the last bit of a weight.
        if (column >= layout.key_count_lower_bound_column(0) &&
            column < layout.kl_replaced_keys_column(0))
          continue;
        std::vector<double> one, other;
        for (auto at = column; at < std::ssize(a.sum); at += a.columns) {
          one.push_back(a.sum[static_cast<std::size_t>(at)]);
          other.push_back(b.sum[static_cast<std::size_t>(at)]);
        }
        EXPECT_LT(relative(one, other), 1e-3) << "column " << column;
      }
      ASSERT_EQ(a.key_sums.empty(), which == Case::sampled_queries);
      if (a.key_sums.empty()) continue;
      const std::vector<double> sums(a.key_sums.begin(), a.key_sums.end());
      EXPECT_LT(relative(sums, {b.key_sums.begin(), b.key_sums.end()}), 1e-4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CudaStatistics,
                         testing::Values("llama_gqa", "mistral_window_long", "ministral3", "qwen3",
                                         "smollm3_list", "mllama_text", "gemma3_text", "glm4",
                                         "rope_yarn"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace qkscope
