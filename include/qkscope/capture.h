// Making captures: running a model over texts and storing the query and key vectors of chosen heads
// at sampled positions.
//
//   auto config = qkscope::read_capture_config("run.yaml");
//   qkscope::fetch_capture_inputs(config);  // only for names on the Hub
//   auto result = qkscope::run_capture(qkscope::make_plan(config), {});
//
// A run that was stopped or killed continues where it was when it is started again.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/captures.h"
#include "qkscope/hub.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"
#include "qkscope/version.h"

namespace qkscope {

struct RunPlan;  // the library's own

// ---- Configuration: one struct per section of the YAML file ----

struct DatasetConfig {
  std::string path;                 // a file, a folder or a name on the Hub
  std::optional<std::string> name;  // the dataset's configuration
  std::string split = "train";
  std::string text_column = "text";
  std::optional<std::string> id_column;
  bool number_rows = false;                 // dataset.ids: row
  std::optional<std::int64_t> max_samples;  // none: all
  bool replace_invalid = false;             // "errors: replace": U+FFFD where a text is not UTF-8
};

struct ModelSource {
  std::string name;  // a folder or a name on the Hub
  std::optional<std::string> revision;
  DType dtype = DType::f16;
  std::string device_map = "auto";  // auto, cpu, cuda or cuda:N
  std::string config_overrides;     // a JSON object merged into config.json; "": none
};

struct TokenizerConfig {
  std::string name;                     // the model's where the file does not say
  std::optional<std::string> revision;  // the model's where the file names no other tokenizer
  std::int64_t max_length = 4096;       // tokens; longer texts are cut
};

struct InferenceConfig {
  std::int64_t batch_size = 1;  // texts that run together
  std::optional<DType> autocast_dtype;
  bool debug_logging = false;
  std::int64_t debug_log_every_n_batches = 1;
};

// A seeded draw of query heads, the same as Python's random.sample.
struct HeadSampling {
  std::int64_t count = 0;
  std::int64_t seed = 0;
};

// A query head by its place.
struct LayerHead {
  std::int64_t layer = 0;
  std::int64_t head = 0;

  auto operator<=>(const LayerHead&) const = default;
};

struct HeadFilter {
  std::optional<std::vector<LayerHead>> pairs;      // these heads; instead of layers and heads
  std::optional<std::vector<std::int64_t>> layers;  // none: every layer
  std::optional<std::vector<std::int64_t>> heads;   // query heads; none: every head
  std::optional<HeadSampling> sampling;             // none: every candidate
  bool full_attention_only = false;
};

struct CaptureSettings {
  bool queries = true;
  bool keys = true;
  HeadFilter heads;
  SamplerOptions sampler;
  bool pre_rope = false;
  bool token_strings = false;
  bool keep_non_finite = false;  // else a vector with NaN or infinity ends the run
};

struct OutputConfig {
  std::string data_root = "data";
  std::optional<std::string> hf_repo_id;
  std::optional<std::string> hf_branch;
  bool private_repo = false;
  std::int64_t write_batch_size = 4096;  // rows of a row group
  std::optional<bool> assemble_ahead;    // while texts still run; none: where a GPU computes
};

struct CaptureConfig {
  DatasetConfig dataset;
  ModelSource model;
  TokenizerConfig tokenizer;
  InferenceConfig inference;
  CaptureSettings capture;
  OutputConfig output;
};

// `overrides` are KEY=VALUE with dotted keys. Unknown keys, wrong types and values out of range are
// bad input that names the key, its line and what was expected.
QKSCOPE_API CaptureConfig read_capture_config(const std::string& file,
                                              const std::vector<std::string>& overrides = {});
// The same from YAML text; messages call it "config".
QKSCOPE_API CaptureConfig parse_capture_config(const std::string& yaml,
                                               const std::vector<std::string>& overrides = {});

// Downloads what the configuration names and the Hub's cache lacks: dataset, tokenizer and
// checkpoint. Afterwards each of them is a local path or in the cache.
QKSCOPE_API void fetch_capture_inputs(const CaptureConfig& config,
                                      const FetchOptions& options = {});

// ---- The plan: what a run will do ----

// How the model runs, in place of what the configuration says.
struct ComputeOptions {
  std::string device;  // "": model.device_map
  // Several devices that share the texts, in place of `device`: cpu, cuda:N, the same one more than
  // once, or all (every GPU). All of one kind. Results are those of one device.
  std::vector<std::string> devices = {};
  std::optional<DType> dtype;      // of weights and activations on CUDA; none: the configuration's
  std::int64_t device_memory = 0;  // bytes that may be taken on CUDA; 0: what is free
  std::int64_t batch_tokens = 0;  // that run together on CUDA; 0: 32768, 65536 for streamed weights
  bool deterministic = false;     // on CUDA: every text runs alone
};

// What a run takes on its device.
struct MemoryPlan {
  std::int64_t available = 0;     // bytes that may be taken on the device; 0: not known
  std::int64_t weights = 0;       // bytes
  std::int64_t held_weights = 0;  // of those, on the device at a time
  std::int64_t batch_tokens = 0;  // of the largest batch
  std::int64_t activations = 0;   // bytes, of that batch

  bool streams() const { return held_weights < weights; }
};

// Made by make_plan(). Copies share what they hold.
class QKSCOPE_API CapturePlan {
 public:
  explicit CapturePlan(std::shared_ptr<const RunPlan> plan);

  const CaptureConfig& config() const;  // with the type that ComputeOptions asked for
  const ModelConfig& model() const;
  Device device() const;                                     // the first, where there are several
  std::size_t workers() const;                               // how many devices share the texts
  DType dtype() const;                                       // in which the model runs
  const MemoryPlan& memory() const;                          // on the device
  const std::vector<HeadGroup>& heads() const;               // by layer, q before k
  const std::vector<std::int64_t>& eligible_layers() const;  // from which heads were drawn
  const std::vector<std::int64_t>& excluded_layers() const;  // by full_attention_only

  const RunPlan& run_plan() const { return *plan_; }

 private:
  std::shared_ptr<const RunPlan> plan_;
};

// Reads config.json, no weights. What does not fit on the device is refused.
QKSCOPE_API CapturePlan make_plan(const CaptureConfig& config, const ComputeOptions& compute = {});

// What a run would give, from the configuration and the tokenized lengths alone: positions are
// drawn as the run draws them, so the number of rows is exact.
struct DryRun {
  std::int64_t examples = 0;
  std::int64_t truncated = 0;
  std::int64_t tokens = 0;
  std::int64_t longest = 0;           // tokens
  std::int64_t files = 0;             // head files
  std::int64_t rows = 0;              // over all heads
  std::int64_t bytes = 0;             // of those rows before compression
  double flop = 0;                    // of the forward passes
  std::int64_t largest_batch = 0;     // tokens
  std::int64_t weight_bytes = 0;      // in memory at a time; on the CPU mapped from the checkpoint
  std::int64_t activation_bytes = 0;  // of the largest batch
};

QKSCOPE_API DryRun dry_run(const CapturePlan& plan, const Shard& shard = {});

// One JSON object: heads by layer, eligible and excluded layers, and the numbers above.
QKSCOPE_API std::string plan_json(const CapturePlan& plan, const DryRun& dry);

// ---- The run ----

struct CaptureProgress {
  std::int64_t examples = 0;  // done, those of earlier runs counted in
  std::int64_t total = 0;     // 0: not known
  std::int64_t rows = 0;      // over all heads
  std::int64_t tokens = 0;
};

struct CaptureOptions {
  Shard shard;
  bool overwrite = false;                   // removes what the folder holds; else continues it
  bool quiet = false;                       // no progress
  const std::atomic<bool>* stop = nullptr;  // when it becomes true the run ends after its batch
  // Called after every batch, on the calling thread. It ends the run by setting `stop`, not by
  // throwing.
  std::function<void(const CaptureProgress&)> on_batch = {};
};

struct CaptureResult {
  enum class Outcome {
    finished,          // the files are there
    already_finished,  // they were there before
    part_finished,     // this shard is done; a merge makes the files
    interrupted,       // stopped; the same command continues
  };
  Outcome outcome = Outcome::finished;
  std::int64_t examples = 0;
  std::int64_t rows = 0;  // over all heads
  std::int64_t tokens = 0;
  std::int64_t non_finite = 0;    // rows whose vector holds NaN or infinity, where they are kept
  double seconds = 0.0;           // of this call, and of those:
  double load_seconds = 0.0;      // until the model was ready
  double forward_seconds = 0.0;   // in the forward pass
  double input_seconds = 0.0;     // waiting for texts to be read and tokenized
  double assembly_seconds = 0.0;  // making the final files
};

QKSCOPE_API std::string_view outcome_name(CaptureResult::Outcome outcome);  // "part finished"

// One JSON object: outcome, examples, rows, tokens and seconds.
QKSCOPE_API std::string result_json(const CaptureResult& result);

// Captures into config.output.data_root, which one run at a time may write to.
QKSCOPE_API CaptureResult run_capture(const CapturePlan& plan, const CaptureOptions& options = {});

// Makes the final files of a capture in shards once every shard is complete; says which are not.
QKSCOPE_API CaptureResult merge_capture(const std::string& data_root, bool quiet = false);

}  // namespace qkscope
