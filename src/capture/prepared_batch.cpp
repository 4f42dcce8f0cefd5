#include "capture/prepared_batch.h"

#include "core/thread_pool.h"

namespace qkscope {
namespace {

GroupSample draw(const PreparedBatch& prepared, const HeadGroup& group,
                 const PositionSampler& sampler) {
  GroupSample sample;
  for (std::size_t s = 0; s < prepared.sequence.size(); ++s) {
    const auto& example = prepared.examples[prepared.sequence[s]];
    const auto& sequence = prepared.batch.sequences[s];
    const auto seed = sampling_seed(example.record.key, group.layer, static_cast<char>(group.kind));
    for (const auto position : sampler.sample(seed, sequence.length)) {
      sample.positions.push_back(position);
      sample.rows.push_back(sequence.begin + position);
    }
    sample.ends.push_back(sample.positions.size());
  }
  return sample;
}

}  // namespace

PreparedBatch prepare_batch(const CapturePlan& plan, std::vector<Example> examples) {
  PreparedBatch prepared;
  prepared.examples = std::move(examples);
  for (std::size_t i = 0; i < prepared.examples.size(); ++i) {
    const auto& ids = prepared.examples[i].ids;
    if (ids.empty()) continue;  // a text without a token has no rows
    prepared.batch.add(ids);
    prepared.sequence.push_back(i);
  }
  const auto& groups = plan.manifest.groups;
  const PositionSampler sampler(plan.manifest.sampler);
  prepared.samples.resize(groups.size());
  parallel_for(static_cast<std::int64_t>(groups.size()), [&](std::int64_t i) {
    const auto group = static_cast<std::size_t>(i);
    prepared.samples[group] = draw(prepared, groups[group], sampler);
  });
  return prepared;
}

}  // namespace qkscope
