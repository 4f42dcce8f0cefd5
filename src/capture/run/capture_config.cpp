#include <algorithm>

#include <fmt/ranges.h>

#include "base/core/convert.h"
#include "base/core/log.h"
#include "base/core/project.h"
#include "base/yaml/yaml_config.h"
#include "capture/format/buckets.h"
#include "capture/run/capture_plan.h"
#include "input/texts/dataset_files.h"

namespace qkscope {
namespace {

constexpr std::int64_t kAnyInteger = INT64_MIN;

DatasetConfig read_dataset_section(YamlSection section) {
  DatasetConfig dataset;
  dataset.path = section.required_text("path");
  dataset.name = section.text("name");
  dataset.split = section.text("split").value_or(dataset.split);
  dataset.text_column = section.text("text_column").value_or(dataset.text_column);
  dataset.id_column = section.text("id_column");
  dataset.number_rows = section.boolean_from_words("ids", "column", "row");
  dataset.max_samples = section.integer("max_samples", 1);
  dataset.replace_invalid = section.boolean_from_words("errors", "strict", "replace");
  section.boolean("streaming");  // reading always streams
  section.reject_unknown_keys();
  return dataset;
}

std::optional<DType> read_dtype(YamlSection& section, const std::string& key) {
  const auto name = section.text(key);
  if (!name) return {};
  const auto dtype = find_compute_dtype(*name);
  if (!dtype) section.reject_value(key, "float16, fp16, bfloat16, bf16, float32 or fp32");
  return dtype;
}

bool is_device_name(const std::string& text) {
  if (text == "auto" || text == "cpu" || text == "cuda") return true;
  if (!text.starts_with("cuda:") || text.size() == 5 || text.size() > 8) return false;
  return std::all_of(text.begin() + 5, text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Accepts and ignores trust_remote_code. If it is true, adds `name` to the warning list `asked`.
void read_trust_remote_code(YamlSection& section, const char* name,
                            std::vector<std::string>& asked) {
  if (section.boolean("trust_remote_code").value_or(false)) asked.emplace_back(name);
}

ModelSource read_model_section(YamlSection section, std::vector<std::string>& remote_code) {
  ModelSource model;
  model.name = section.required_text("name");
  model.revision = section.text("revision");
  model.dtype = read_dtype(section, "dtype").value_or(model.dtype);
  model.device_map = section.text("device_map").value_or(model.device_map);
  if (!is_device_name(model.device_map))
    section.reject_value("device_map", "auto, cpu, cuda, cuda:N or null");
  read_trust_remote_code(section, "model.trust_remote_code", remote_code);
  section.text("attn_implementation");  // accepted for compatibility with transformers, ignored
  if (const auto overrides = section.mapping("config_overrides"); !overrides.is_null())
    model.config_overrides = overrides.dump();
  section.reject_unknown_keys();
  return model;
}

TokenizerConfig read_tokenizer_section(YamlSection section, const ModelSource& model,
                                       std::vector<std::string>& remote_code) {
  TokenizerConfig tokenizer;
  const auto name = section.text("name");
  tokenizer.name = name.value_or(model.name);
  tokenizer.revision = section.text("revision");
  if (!name && !tokenizer.revision) tokenizer.revision = model.revision;
  const auto max_length = section.integer("max_length", 1);
  auto& chunk = tokenizer.chunk;
  chunk = {.size = section.integer("chunk", 1).value_or(0),
           .overlap = section.integer("chunk_overlap", 0).value_or(0),
           .min_length = section.integer("chunk_min", 1).value_or(1)};
  check_chunk_options(chunk);
  if (max_length && chunk.size > *max_length)
    section.reject_value("chunk", fmt::format("at most tokenizer.max_length, {}", *max_length));
  tokenizer.max_length = chunk.size > 0 ? chunk.size : max_length.value_or(tokenizer.max_length);
  section.accept_keys({"padding"});  // sequences are never padded
  read_trust_remote_code(section, "tokenizer.trust_remote_code", remote_code);
  if (section.text("padding_side").value_or("right") != "right")
    section.reject_value("padding_side",
                         "right: sequences are never padded, positions count from the first token");
  section.reject_unknown_keys();
  return tokenizer;
}

InferenceConfig read_inference_section(YamlSection section) {
  InferenceConfig inference;
  inference.batch_size = section.integer("batch_size", 1).value_or(inference.batch_size);
  inference.autocast_dtype = read_dtype(section, "autocast_dtype");
  inference.debug_logging = section.boolean("debug_logging").value_or(false);
  inference.debug_log_every_n_batches = section.integer("debug_log_every_n_batches", 1).value_or(1);
  section.accept_retired_keys({"distributed", "backend", "mps_cleanup_every_batches"});
  section.reject_unknown_keys();
  return inference;
}

HeadFilter read_head_filter(YamlSection& section) {
  HeadFilter filter;
  filter.layers = section.integers("layers");
  const auto heads = section.node("heads");
  if (heads.IsSequence() && heads.size() > 0 && heads[0].IsSequence()) {
    filter.pairs =
        read_layer_head_pairs(section, "heads", "pairs [layer, head] only, as [[3, 5], [3, 6]]");
    if (filter.layers) section.reject_value("layers", "null where heads are pairs [layer, head]");
  } else {
    filter.heads = section.integers("heads");
  }
  filter.full_attention_only = section.boolean("full_attention_only").value_or(false);
  if (!section.has_value("head_sampling")) return filter;
  auto sampling = section.section("head_sampling");
  const auto count = sampling.integer("count", 1);
  if (!count) sampling.reject_value("count", "the number of query heads to draw");
  filter.sampling = HeadSampling{*count, sampling.integer("seed", kAnyInteger).value_or(0)};
  sampling.reject_unknown_keys();
  return filter;
}

CaptureSettings read_capture_section(YamlSection section) {
  CaptureSettings capture;
  capture.queries = section.boolean("capture_queries").value_or(true);
  capture.keys = section.boolean("capture_keys").value_or(true);
  if (!capture.queries && !capture.keys)
    section.reject_value("capture_queries", "true, or capture_keys true: one of them is captured");
  capture.heads = read_head_filter(section);
  auto& sampler = capture.sampler;
  auto sampling = section.section("sampler");
  const auto type = sampler_type_from_name(sampling.text("type").value_or("log_uniform"));
  if (!type) sampling.reject_value("type", "log_uniform, uniform or all");
  sampler.type = *type;
  sampler.base_rate = sampling.positive_number("base_rate").value_or(sampler.base_rate);
  sampling.reject_unknown_keys();
  sampler.min_bucket_size = section.integer("min_bucket_size", 1).value_or(sampler.min_bucket_size);
  sampler.max_rows = section.integer("max_rows_per_batch", 1);
  capture.pre_rope = section.boolean("capture_pre_rope").value_or(false);
  capture.token_strings = section.boolean("capture_token_strings").value_or(false);
  capture.keep_non_finite = section.boolean_from_words("non_finite", "refuse", "keep");
  section.reject_unknown_keys();
  return capture;
}

OutputConfig read_output_section(YamlSection section) {
  OutputConfig output;
  output.data_root = section.text("data_root").value_or(output.data_root);
  if (output.data_root.empty()) section.reject_value("data_root", "a folder");
  section.text("readme_path");  // the dataset card is always data_root/README.md
  output.hf_repo_id = section.text("hf_repo_id");
  output.hf_branch = section.text("hf_branch");
  output.private_repo = section.boolean("private").value_or(false);
  output.write_batch_size =
      section.integer("write_batch_size", 1).value_or(output.write_batch_size);
  output.assemble_ahead = section.boolean("assemble_ahead");
  section.reject_unknown_keys();
  return output;
}

Json capture_settings_json(const CaptureSettings& capture) {
  const auto& sampling = capture.heads.sampling;
  const auto& sampler = capture.sampler;
  Json heads = value_or_null(capture.heads.heads);
  if (const auto& pairs = capture.heads.pairs)
    heads = to_vector(*pairs, [](const LayerHead& pair) { return Json{pair.layer, pair.head}; });
  return {
      {"capture_queries", capture.queries},
      {"capture_keys", capture.keys},
      {"layers", value_or_null(capture.heads.layers)},
      {"heads", heads},
      {"head_sampling",
       sampling ? Json{{"count", sampling->count}, {"seed", sampling->seed}} : Json(nullptr)},
      {"full_attention_only", capture.heads.full_attention_only},
      {"sampler", {{"type", sampler_type_name(sampler.type)}, {"base_rate", sampler.base_rate}}},
      {"min_bucket_size", sampler.min_bucket_size},
      {"max_rows_per_batch", value_or_null(sampler.max_rows)},
      {"capture_pre_rope", capture.pre_rope},
      {"capture_token_strings", capture.token_strings}};
}

}  // namespace

std::vector<LayerHead> read_layer_head_pairs(YamlSection& section, const std::string& key,
                                             const std::string& expected) {
  std::vector<LayerHead> pairs;
  const auto list = section.node(key);
  if (list.IsNull() || !list.IsDefined()) return pairs;
  if (!list.IsSequence()) section.reject_value(key, expected);
  for (const auto& item : list) {
    LayerHead pair;
    if (!item.IsSequence() || item.size() != 2 || !decode_integer(item[0], pair.layer) ||
        !decode_integer(item[1], pair.head))
      section.reject_value(key, expected);
    pairs.push_back(pair);
  }
  return pairs;
}

CaptureConfig read_capture_config(const YamlDocument& document) {
  YamlSection root(document, document.root, "");
  CaptureConfig config;
  config.engine = root.text("engine").value_or(config.engine);
  config.dataset = read_dataset_section(root.section("dataset"));
  std::vector<std::string> remote_code;
  config.model = read_model_section(root.section("model"), remote_code);
  config.tokenizer = read_tokenizer_section(root.section("tokenizer"), config.model, remote_code);
  config.inference = read_inference_section(root.section("inference"));
  config.capture = read_capture_section(root.section("capture"));
  config.output = read_output_section(root.section("output"));
  root.accept_keys({"stats"});  // read by `qkscope stats`, which takes the same file
  root.reject_unknown_keys();
  if (!remote_code.empty())
    log::warn("{}: no code from a checkpoint is ever run; ignored", fmt::join(remote_code, ", "));
  return config;
}

Json config_overrides(const ModelSource& model) {
  return model.config_overrides.empty()
             ? Json(nullptr)
             : parse_json(model.config_overrides, "model.config_overrides");
}

Json effective_config(const CaptureConfig& config) {
  const auto& dataset = config.dataset;
  Json texts = {{"path", dataset.path},
                {"name", value_or_null(dataset.name)},
                {"split", dataset.split},
                {"text_column", dataset.text_column},
                {"id_column", value_or_null(dataset.id_column)},
                {"max_samples", value_or_null(dataset.max_samples)}};
  if (dataset.number_rows) texts["ids"] = "row";
  if (dataset.replace_invalid) texts["errors"] = "replace";
  Json tokenizer = {{"name", config.tokenizer.name}, {"max_length", config.tokenizer.max_length}};
  if (config.tokenizer.revision) tokenizer["revision"] = *config.tokenizer.revision;
  if (const auto& chunk = config.tokenizer.chunk; chunk.size > 0)
    tokenizer.update(Json{
        {"chunk", chunk.size}, {"chunk_overlap", chunk.overlap}, {"chunk_min", chunk.min_length}});
  const auto autocast = config.inference.autocast_dtype;
  Json effective = {
      {"dataset", texts},
      {"model",
       {{"name", config.model.name},
        {"revision", value_or_null(config.model.revision)},
        {"dtype", dtype_name(config.model.dtype)},
        {"config_overrides", config_overrides(config.model)}}},
      {"tokenizer", tokenizer},
      {"inference", {{"autocast_dtype", autocast ? Json(dtype_name(*autocast)) : Json(nullptr)}}},
      {"capture", capture_settings_json(config.capture)},
      {"output", {{"write_batch_size", config.output.write_batch_size}}}};
  if (config.engine != kNativeEngine) effective["engine"] = config.engine;
  return effective;
}

}  // namespace qkscope
