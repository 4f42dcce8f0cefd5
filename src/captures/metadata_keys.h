// Names of the key-value metadata in every head file. Whoever writes a capture and whoever reads
// one take them from here; docs/capture-format.md says what each holds.
#pragma once

namespace qkscope::metadata {

inline constexpr char kModel[] = "model";
inline constexpr char kRevision[] = "revision";
inline constexpr char kCommit[] = "commit";
inline constexpr char kLayer[] = "layer";
inline constexpr char kHead[] = "head";
inline constexpr char kKind[] = "kind";       // "q" or "k"
inline constexpr char kKeyHead[] = "k_head";  // on q files: the key head this head reads
inline constexpr char kRope[] = "rope";       // a JSON object {type, theta, dim, ...}, or "none"
inline constexpr char kRopeInvFreq[] = "rope_inv_freq";  // a JSON list, radians per token
inline constexpr char kStage[] = "stage";                // "pre_rope" or "post_rope"
inline constexpr char kDtype[] = "dtype";
inline constexpr char kDevice[] = "device";
inline constexpr char kVersion[] = "version";
inline constexpr char kConfigHash[] = "config_hash";

inline constexpr char kRopeNone[] = "none";

// In _saver_state.json under "model_metadata".
inline constexpr char kStateModelName[] = "model_name";
inline constexpr char kStateModelMetadata[] = "model_metadata";
inline constexpr char kStateQueryHeads[] = "head_sampling_num_query_heads";
inline constexpr char kStateKeyHeads[] = "head_sampling_num_key_heads";

}  // namespace qkscope::metadata
