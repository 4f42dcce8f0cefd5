#include "capture/writer/prepared_batch.h"

#include <utility>

#include "base/core/thread_pool.h"
#include "capture/writer/selection.h"

namespace qkscope {
namespace {

HeadGroupSample sample_positions(const PreparedBatch& prepared, const HeadGroup& group,
                                 const PositionSampler& sampler) {
  HeadGroupSample sample;
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

PreparedBatch prepare_batch(const Manifest& manifest, std::vector<Example> examples) {
  PreparedBatch prepared;
  prepared.examples = std::move(examples);
  for (std::size_t i = 0; i < prepared.examples.size(); ++i) {
    const auto& ids = prepared.examples[i].ids;
    if (ids.empty()) continue;  // a text without tokens has no rows
    prepared.batch.add(ids);
    prepared.sequence.push_back(i);
  }
  const auto& groups = manifest.groups;
  const PositionSampler sampler(manifest.sampler);
  prepared.samples.resize(groups.size());
  parallel_for(static_cast<std::int64_t>(groups.size()), [&](std::int64_t i) {
    const auto group = static_cast<std::size_t>(i);
    prepared.samples[group] = sample_positions(prepared, groups[group], sampler);
  });
  return prepared;
}

}  // namespace qkscope
