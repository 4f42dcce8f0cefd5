// Computes the geometry of heads from a capture, from statistics or from checkpoint weights.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "analysis/methods/geometry.h"
#include "analysis/methods/score_shares.h"
#include "qkscope/analysis.h"
#include "qkscope/statistics.h"

namespace qkscope {

// Rows and moments of a query head and its key head.
struct CapturedHeadPair {
  const HeadFile& query_file;
  const HeadFile& key_file;
  const Moments& queries;
  const Moments& keys;
  const SideRanks& query_ranks;
  const SideRanks& key_ranks;
  const TextGroups& texts;
};

// Returns the geometry columns that can be computed from captured rows. `inv_freq`: RoPE
// frequencies of the layer, empty for NoPE layers. If `rope` is unknown, leaves out columns that
// need keys at other positions.
GeometryResult compute_capture_geometry(const CapturedHeadPair& head, RopeUse rope,
                                        const std::vector<double>& inv_freq,
                                        const GeometryOptions& options, std::uint64_t seed);

// Shape (positions): number of documents with a token at each position.
std::vector<std::int64_t> count_documents_by_position(const Statistics& statistics);
Moments moments_of_head(const HeadMoments& from, std::int64_t head);

// Sets the geometry columns that the statistics can provide, for the heads of one layer.
void add_statistics_geometry(const Statistics& statistics, std::span<HeadReport> heads);

// Adds weight_rank_90 and weight_rank_participation of W_Q^T W_K to all heads. `model`: checkpoint
// folder, model id or ID@REVISION. Throws a bad-input error if the model lacks an analysed head.
void add_weight_ranks(const std::string& model, bool quiet, AnalysisRun& run);

}  // namespace qkscope
