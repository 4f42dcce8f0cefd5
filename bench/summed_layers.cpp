#include "summed_layers.h"

#include <algorithm>
#include <cstdlib>

#include "base/core/error.h"

namespace qkscope {
namespace {

constexpr std::int64_t kBuckets = 16;
constexpr std::int64_t kResidualRows = 64;
constexpr std::size_t kKinds = 5;  // q, k and v before rotation, q and k after it

}  // namespace

ResidualRows::ResidualRows(const ModelConfig& model, const Batch& batch)
    : point_{Stage::resid_post, std::max<std::int64_t>(0, model.n_layers - 2)} {
  const auto step = std::max<std::int64_t>(1, batch.rows() / kResidualRows);
  for (std::int64_t row = 0; row < batch.rows(); row += step) rows_.push_back(row);
}

void ResidualRows::observe(HookPoint, ConstTensorView activation) {
  values_.assign(activation.data<float>(), activation.data<float>() + activation.shape().count());
}

class SummedLayers::Moments : public MomentConsumer {
 public:
  explicit Moments(const MomentRequest& request)
      : request_(request), sums_(make_layer_moments(request.shape)) {
    request_.shift = &shift_;
  }
  const MomentRequest& request() const { return request_; }
  void add(const LayerMoments& part) override { merge_moments(sums_, part); }
  void throw_non_finite(const NonFiniteLocation& found) override {
    throw_failure("head {} of document {} holds a number that is not finite", found.head,
                  found.sequence);
  }

 private:
  MomentRequest request_;
  std::vector<float> shift_;
  LayerMoments sums_;
};

class SummedLayers::Attention : public AttentionConsumer {
 public:
  Attention(std::int64_t bucket_size, const std::string& groups, std::size_t documents)
      : documents_(documents) {
    request_.layout.all_keys = groups.starts_with("ABC");
    if (groups == "ABC/16") request_.sample.fraction = 1.0 / 16;
    request_.bucket_size = bucket_size;
    request_.buckets = kBuckets;
    request_.documents = documents_;
  }
  const AttentionRequest& request() const { return request_; }
  void add(LayerAttentionSums attention) override { last_ = std::move(attention); }

 private:
  std::vector<std::int64_t> documents_;  // keys of the sample, all 0
  AttentionRequest request_;
  LayerAttentionSums last_;
};

SummedLayers::SummedLayers(const ModelConfig& model, const Batch& batch, std::string groups)
    : model_(&model),
      groups_(std::move(groups)),
      bucket_size_((batch.longest() + kBuckets - 1) / kBuckets),
      attention_(std::make_unique<Attention>(bucket_size_, groups_, batch.sequences.size())) {
  for (const auto& layer : model.layers)
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      const bool query = kind == 0 || kind == 3, pairs = kind < 2 && layer.rope >= 0;
      MomentRequest request;
      request.shape.heads = query ? model.n_heads : model.n_kv_heads;
      request.shape.dim = model.d_head;
      request.shape.pairs = pairs ? model.ropes[static_cast<std::size_t>(layer.rope)].dim / 2 : 0;
      request.shape.buckets = kBuckets;
      request.first = 4;
      request.bucket_size = bucket_size_;
      request.interleaved = model.rope_interleaved;
      moments_.push_back(std::make_unique<Moments>(request));
    }
}

SummedLayers::~SummedLayers() = default;
SummedLayers::SummedLayers(SummedLayers&&) noexcept = default;

void SummedLayers::add(Backend& backend, ActivationBuffer buffer, std::int64_t layer,
                       bool rotated) {
  const auto kind = (rotated ? std::size_t{3} : std::size_t{0}) + static_cast<std::size_t>(buffer) -
                    static_cast<std::size_t>(ActivationBuffer::q);
  auto& moments = *moments_[static_cast<std::size_t>(layer) * kKinds + kind];
  backend.add_moments(buffer, moments.request(), moments);
}

void SummedLayers::collect_before_rotation(Backend& backend, std::int64_t layer) {
  if (groups_.empty()) return;
  for (const auto buffer : {ActivationBuffer::q, ActivationBuffer::k, ActivationBuffer::v})
    add(backend, buffer, layer, false);
}

void SummedLayers::collect_after_rotation(Backend& backend, std::int64_t layer) {
  // On layers without RoPE q and k equal those before rotation.
  if (groups_.empty() || model_->layers[static_cast<std::size_t>(layer)].rope < 0) return;
  for (const auto buffer : {ActivationBuffer::q, ActivationBuffer::k})
    add(backend, buffer, layer, true);
}

void SummedLayers::collect_after_attention(Backend& backend, std::int64_t) {
  if (groups_.size() > 1) backend.add_attention_statistics(attention_->request(), *attention_);
}

}  // namespace qkscope
