#include "analysis/results/shared_profile.h"

#include <algorithm>

#include "analysis/methods/profile_bins.h"
#include "base/core/error.h"
#include "qkscope/captures.h"

namespace qkscope {
namespace {

void decide(const HeadFile& query, const HeadFile& key, std::int64_t max_tokens,
            PlasticityOptions& options) {
  const Rows queries = rows_of(query.rows);
  const Rows keys = rows_of(key.rows);
  if (queries.size() == 0 || keys.size() == 0) bad_input("no rows");
  const auto sampler = sampler_options(query.metadata, "");
  const auto buckets = sampler ? BucketRanges(*sampler) : BucketRanges(queries, keys);
  const auto used = max_tokens > 0 ? std::min(queries.size(), max_tokens) : queries.size();
  const auto grid = profile_grid(queries, keys, buckets, used, options);
  if (grid.bins > 0) options.profile_bins = grid.bins;
  options.context = grid.context;
}

}  // namespace

PlasticityOptions shared_profile(const AnalyzeOptions& options,
                                 const std::vector<HeadReport>& heads) {
  PlasticityOptions shared = options.plasticity_options;
  check_profile_options(shared);
  for (const auto& head : heads) {
    if (!head.error.empty()) continue;
    try {
      const HeadId key{head.query.layer, head.k_head, HeadKind::key};
      decide(read_head_file(head_file_path(options.data_root, head.query)),
             read_head_file(head_file_path(options.data_root, key)), options.max_tokens, shared);
      break;
    } catch (const Error&) {
      // The head's own report will say what is wrong with its files.
    }
  }
  return shared;
}

}  // namespace qkscope
