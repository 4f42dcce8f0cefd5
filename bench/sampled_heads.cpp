#include "sampled_heads.h"

#include <algorithm>
#include <cstring>

#include "capture/writer/selection.h"

namespace qkscope {
namespace {

std::vector<std::int64_t> sampled_rows(const Batch& batch, std::int64_t layer, char kind) {
  const PositionSampler sampler({});
  std::vector<std::int64_t> rows;
  for (std::size_t document = 0; document < batch.sequences.size(); ++document) {
    const auto& sequence = batch.sequences[document];
    const auto seed = sampling_seed(static_cast<std::int64_t>(document), layer, kind);
    for (const auto position : sampler.sample(seed, sequence.length))
      rows.push_back(sequence.begin + position);
  }
  return rows;
}

}  // namespace

SampledHeads SampledHeads::as_captured(const ModelConfig& model, const Batch& batch) {
  HeadFilter filter;
  filter.sampling = HeadSampling{.count = 300, .seed = 0};
  SampledHeads observer;
  for (const auto& [layer, heads] : select_heads(model, filter).layers) {
    observer.samples_.push_back({.point = {Stage::rot_q, layer},
                                 .rows = sampled_rows(batch, layer, 'q'),
                                 .heads = {heads.queries.begin(), heads.queries.end()}});
    observer.samples_.push_back({.point = {Stage::rot_k, layer},
                                 .rows = sampled_rows(batch, layer, 'k'),
                                 .heads = {heads.keys.begin(), heads.keys.end()}});
  }
  std::erase_if(observer.samples_, [](const Sample& sample) { return sample.rows.empty(); });
  return observer;
}

SampledHeads SampledHeads::almost_none(const ModelConfig& model, const Batch& batch) {
  SampledHeads observer;
  for (const auto stage : {Stage::rot_q, Stage::rot_k})
    observer.samples_.push_back(
        {.point = {stage, model.n_layers - 1}, .rows = {batch.rows() - 1}, .heads = {0}});
  return observer;
}

const SampledHeads::Sample* SampledHeads::find(HookPoint point) const {
  const auto found = std::find_if(samples_.begin(), samples_.end(),
                                  [&](const Sample& sample) { return sample.point == point; });
  return found == samples_.end() ? nullptr : &*found;
}

Selection SampledHeads::selection(HookPoint point) const {
  const auto* sample = find(point);
  return {.rows = sample->rows, .heads = sample->heads};
}

void SampledHeads::observe(HookPoint, ConstTensorView activation) {
  copy_.resize(static_cast<std::size_t>(activation.size()));
  const auto width = activation.size() / activation.dim(0);
  for (std::int64_t row = 0; row < activation.dim(0); ++row)
    std::memcpy(copy_.data() + row * width, activation.data<float>() + row * activation.stride(0),
                static_cast<std::size_t>(width) * sizeof(float));
  values_ += activation.size();
}

}  // namespace qkscope
