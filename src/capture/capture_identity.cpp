#include "capture/capture_config.h"

namespace qkscope {
namespace {

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json capture_json(const CaptureSettings& capture) {
  const auto& sampling = capture.heads.sampling;
  const auto& sampler = capture.sampler;
  return {
      {"capture_queries", capture.queries},
      {"capture_keys", capture.keys},
      {"layers", or_null(capture.heads.layers)},
      {"heads", or_null(capture.heads.heads)},
      {"head_sampling",
       sampling ? Json{{"count", sampling->count}, {"seed", sampling->seed}} : Json(nullptr)},
      {"full_attention_only", capture.heads.full_attention_only},
      {"sampler", {{"type", sampler_type_name(sampler.type)}, {"base_rate", sampler.base_rate}}},
      {"min_bucket_size", sampler.min_bucket_size},
      {"max_rows_per_batch", or_null(sampler.max_rows)},
      {"capture_pre_rope", capture.pre_rope},
      {"capture_token_strings", capture.token_strings}};
}

}  // namespace

Json effective_config(const CaptureConfig& config) {
  const auto& dataset = config.dataset;
  const auto autocast = config.inference.autocast_dtype;
  return {
      {"dataset",
       {{"path", dataset.path},
        {"name", or_null(dataset.name)},
        {"split", dataset.split},
        {"text_column", dataset.text_column},
        {"id_column", or_null(dataset.id_column)},
        {"max_samples", or_null(dataset.max_samples)}}},
      {"model",
       {{"name", config.model.name},
        {"revision", or_null(config.model.revision)},
        {"dtype", dtype_name(config.model.dtype)},
        {"config_overrides", config.model.config_overrides}}},
      {"tokenizer", {{"name", config.tokenizer.name}, {"max_length", config.tokenizer.max_length}}},
      {"inference", {{"autocast_dtype", autocast ? Json(dtype_name(*autocast)) : Json(nullptr)}}},
      {"capture", capture_json(config.capture)},
      {"output", {{"write_batch_size", config.output.write_batch_size}}}};
}

}  // namespace qkscope
