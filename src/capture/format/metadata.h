// Keys of the Parquet metadata of head files and of the state file, shared by writers and readers.
// docs/reference/capture-format.md describes each key.
#pragma once

#include <vector>

#include "qkscope/captures.h"

namespace qkscope {

namespace metadata {

inline constexpr char kModel[] = "model";
inline constexpr char kRevision[] = "revision";
inline constexpr char kCommit[] = "commit";
inline constexpr char kLayer[] = "layer";
inline constexpr char kHead[] = "head";
inline constexpr char kKind[] = "kind";       // "q" or "k"
inline constexpr char kKeyHead[] = "k_head";  // in q files: the key head of this query head (GQA)
inline constexpr char kRope[] = "rope";       // a JSON object {type, theta, dim, ...}, or "none"
inline constexpr char kRopeInvFreq[] = "rope_inv_freq";  // a JSON list, radians per token
inline constexpr char kStage[] = "stage";                // "pre_rope" or "post_rope"
inline constexpr char kSampler[] = "sampler";            // "log_uniform", "uniform" or "all"
inline constexpr char kBaseRate[] = "base_rate";
inline constexpr char kMinBucketSize[] = "min_bucket_size";
inline constexpr char kDtype[] = "dtype";
inline constexpr char kDevice[] = "device";
inline constexpr char kVersion[] = "version";
inline constexpr char kConfigHash[] = "config_hash";
inline constexpr char kEngine[] = "engine";        // name and version, if not the native engine
inline constexpr char kTokenizer[] = "tokenizer";  // with kEngine: "qkscope" or "engine"
inline constexpr char kScoreScales[] = "score_scales";  // statistics: factor of q.k by layer

inline constexpr char kRopeNone[] = "none";

// Keys of the state file.
inline constexpr char kStateModelName[] = "model_name";
inline constexpr char kStateModelMetadata[] = "model_metadata";
inline constexpr char kStateBucketCounts[] = "bucket_counts";
inline constexpr char kStateConfiguration[] = "configuration";
inline constexpr char kStateConfigurationHash[] = "configuration_hash";
inline constexpr char kStateFiles[] = "files";  // base/io/file_list.h
inline constexpr char kStatePublish[] = "publish";
inline constexpr char kStateNonFinite[] = "non_finite_rows";  // missing when zero
// Keys of the state file under "model_metadata".
inline constexpr char kStateQueryHeads[] = "head_sampling_num_query_heads";
inline constexpr char kStateKeyHeads[] = "head_sampling_num_key_heads";
inline constexpr char kStateFullAttentionOnly[] = "head_sampling_full_attention_only";
inline constexpr char kStateAttentionScope[] = "attention_scope";  // "full_only", "all_attention"
inline constexpr char kStateDatasetRepo[] = "dataset_repo";        // Hub repository, or ""
inline constexpr char kStateDatasetBranch[] = "dataset_branch";
inline constexpr char kStateSampling[] = "sampling_strategy";       // "log", "uniform" or "all"
inline constexpr char kStateBucketSize[] = "sampling_bucket_size";  // for uniform and all
inline constexpr char kStateLeastBucket[] = "sampling_min_bucket_size";  // for log: a power of two

}  // namespace metadata

// Writes the sampler options under the metadata keys that sampler_options() reads.
void add_sampler_metadata(Metadata& metadata, const SamplerOptions& sampler);

// Returns the name to show for a model or dataset: a Hub id unchanged, a path without its parents.
std::string id_or_base_name(const std::string& id_or_path);

// Frequencies of unscaled RoPE in radians per token: theta^(-2i/dim) for i in [0, dim/2).
std::vector<double> unscaled_inv_freq(double theta, int dim);

}  // namespace qkscope
