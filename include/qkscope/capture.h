// Creating captures: runs a model over texts and stores the query and key vectors of selected heads
// at sampled positions.
//
//   auto config = qkscope::read_capture_config("run.yaml");
//   qkscope::fetch_capture_inputs(config);  // only for names on the Hub
//   auto result = qkscope::run_capture(qkscope::make_plan(config), {});
//
// A run that was stopped or killed resumes when it is started again.
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
#include "qkscope/texts.h"
#include "qkscope/version.h"

namespace qkscope {

struct RunPlan;  // internal

// ---- Configuration: one struct per section of the YAML file ----

// Texts to run: section `dataset`.
struct DatasetConfig {
  std::string path;                 // file, folder or Hub name
  std::optional<std::string> name;  // configuration name of the dataset
  std::string split = "train";
  std::string text_column = "text";
  std::optional<std::string> id_column;
  bool number_rows = false;                 // dataset.ids: row; the row number is the id
  std::optional<std::int64_t> max_samples;  // nullopt: all
  bool replace_invalid = false;             // errors: replace; invalid UTF-8 becomes U+FFFD
};

// Checkpoint to run: section `model`.
struct ModelSource {
  std::string name;  // folder or Hub name
  std::optional<std::string> revision;
  DType dtype = DType::f16;
  std::string device_map = "auto";  // auto, cpu, cuda or cuda:N
  std::string config_overrides;     // JSON object merged into config.json; "": none
};

// Section `tokenizer`.
struct TokenizerConfig {
  std::string name;                     // default: the model
  std::optional<std::string> revision;  // default: that of the model, unless `name` is given
  std::int64_t max_length = 4096;       // tokens; longer texts are truncated. At least chunk.size
  ChunkOptions chunk = {};              // cuts texts into several examples instead
};

// Section `inference`.
struct InferenceConfig {
  std::int64_t batch_size = 1;  // texts per batch
  std::optional<DType> autocast_dtype;
  bool debug_logging = false;
  std::int64_t debug_log_every_n_batches = 1;
};

// Seeded random sample of query heads; selects the same heads as Python's random.sample.
struct HeadSampling {
  std::int64_t count = 0;
  std::int64_t seed = 0;
};

// A query head.
struct LayerHead {
  std::int64_t layer = 0;
  std::int64_t head = 0;

  auto operator<=>(const LayerHead&) const = default;
};

// Selects the heads to capture.
struct HeadFilter {
  std::optional<std::vector<LayerHead>> pairs;  // exactly these heads; excludes layers and heads
  std::optional<std::vector<std::int64_t>> layers;  // nullopt: every layer
  std::optional<std::vector<std::int64_t>> heads;   // query heads; nullopt: every head
  std::optional<HeadSampling> sampling;             // nullopt: every candidate
  bool full_attention_only = false;                 // excludes sliding-window layers
};

// Section `capture`.
struct CaptureSettings {
  bool queries = true;
  bool keys = true;
  HeadFilter heads;
  SamplerOptions sampler;
  bool pre_rope = false;
  bool token_strings = false;
  bool keep_non_finite = false;  // false: a vector with NaN or infinity ends the run
};

// Section `output`.
struct OutputConfig {
  std::string data_root = "data";
  std::optional<std::string> hf_repo_id;
  std::optional<std::string> hf_branch;
  bool private_repo = false;
  std::int64_t write_batch_size = 4096;  // rows per Parquet row group
  std::optional<bool> assemble_ahead;    // write final files during the run; nullopt: on GPUs only
};

inline constexpr char kNativeEngine[] = "native";
inline constexpr char kTransformersEngine[] = "transformers";

// Configuration of a capture.
struct CaptureConfig {
  std::string engine = kNativeEngine;  // runs the model: native, or transformers from Python
  DatasetConfig dataset;
  ModelSource model;
  TokenizerConfig tokenizer;
  InferenceConfig inference;
  CaptureSettings capture;
  OutputConfig output;
  // For error messages: path of the configuration file, if any, and the subcommand that uses it.
  std::string file = {};
  std::string command = "capture";
};

// Reads a YAML file. `overrides` are KEY=VALUE with dotted keys. Throws a bad-input error that
// names the key, its line and the expected value for unknown keys, wrong types and values out of
// range.
QKSCOPE_API CaptureConfig read_capture_config(const std::string& file,
                                              const std::vector<std::string>& overrides = {});
// Parses a capture configuration from YAML text. Error messages refer to the text as "config".
QKSCOPE_API CaptureConfig parse_capture_config(const std::string& yaml,
                                               const std::vector<std::string>& overrides = {});

// Downloads the dataset, tokenizer and checkpoint named in the configuration, unless they are in
// the Hub cache.
QKSCOPE_API void fetch_capture_inputs(const CaptureConfig& config,
                                      const FetchOptions& options = {});

// ---- Plan ----

// Overrides the compute settings of a configuration.
struct ComputeOptions {
  std::string device;  // "": model.device_map
  // If not empty, replaces `device` and divides the texts among several devices of one kind: cpu,
  // cuda:N (repeats are allowed) or all (every GPU). Results equal those of a single device.
  std::vector<std::string> devices = {};
  std::optional<DType> dtype;      // of weights and activations on CUDA; nullopt: as configured
  std::int64_t device_memory = 0;  // limit in bytes on CUDA; 0: all free memory
  std::int64_t batch_tokens = 0;   // tokens per batch on CUDA; 0: 32768, 65536 for streamed weights
  bool deterministic = false;      // on CUDA: one text per batch
};

// Memory of a run on its device.
struct MemoryPlan {
  std::int64_t available = 0;     // bytes; 0: unknown
  std::int64_t weights = 0;       // bytes of all weights
  std::int64_t held_weights = 0;  // bytes of weights on the device at a time
  std::int64_t batch_tokens = 0;  // tokens of the largest batch
  std::int64_t activations = 0;   // bytes of the largest batch

  bool streams() const { return held_weights < weights; }
};

// Plan of a capture run, created by make_plan(). Copies share the same plan.
class QKSCOPE_API CapturePlan {
 public:
  explicit CapturePlan(std::shared_ptr<const RunPlan> plan);

  const CaptureConfig& config() const { return *config_; }  // includes ComputeOptions::dtype
  const ModelConfig& model() const { return *model_; }
  Device device() const { return device_; }              // the first of several devices
  std::size_t workers() const { return workers_; }       // number of devices
  DType dtype() const { return dtype_; }                 // of the computation
  const MemoryPlan& memory() const { return *memory_; }  // per device
  // Ascending by layer, q before k.
  const std::vector<HeadGroup>& heads() const { return *heads_; }
  // Layers with candidate heads.
  const std::vector<std::int64_t>& eligible_layers() const { return *eligible_layers_; }
  // Layers excluded by full_attention_only.
  const std::vector<std::int64_t>& excluded_layers() const { return *excluded_layers_; }

  const RunPlan& run_plan() const { return *plan_; }

 private:
  std::shared_ptr<const RunPlan> plan_;  // owns the objects that the pointers below refer to
  const CaptureConfig* config_;
  const ModelConfig* model_;
  Device device_;
  std::size_t workers_;
  DType dtype_;
  const MemoryPlan* memory_;
  const std::vector<HeadGroup>* heads_;
  const std::vector<std::int64_t>* eligible_layers_;
  const std::vector<std::int64_t>* excluded_layers_;
};

// Plans a capture. Reads config.json but no weights. Throws a bad-input error if the run does not
// fit on the device.
QKSCOPE_API CapturePlan make_plan(const CaptureConfig& config, const ComputeOptions& compute = {});

// Predicted size and cost of a run. Positions are sampled as in the run, so `rows` is exact.
struct DryRun {
  std::int64_t examples = 0;
  std::int64_t truncated = 0;
  std::int64_t tokens = 0;
  std::int64_t longest = 0;           // tokens
  std::int64_t files = 0;             // head files
  std::int64_t rows = 0;              // over all heads
  std::int64_t bytes = 0;             // of all rows before compression
  double flop = 0;                    // floating-point operations of the forward passes
  std::int64_t largest_batch = 0;     // tokens
  std::int64_t weight_bytes = 0;      // in memory at a time; on the CPU mapped from the checkpoint
  std::int64_t activation_bytes = 0;  // of the largest batch
  std::int64_t dropped_chunks = 0;    // last chunks of texts, shorter than chunk.min_length
};

// Tokenizes the texts of a shard and predicts the result of a run without running the model.
QKSCOPE_API DryRun dry_run(const CapturePlan& plan, const Shard& shard = {});

// Returns a JSON object with the fields of `dry` and the plan's heads, layers, device and memory.
QKSCOPE_API std::string plan_json(const CapturePlan& plan, const DryRun& dry);

// ---- Run ----

// Passed to CaptureOptions::on_batch.
struct CaptureProgress {
  std::int64_t examples = 0;  // stored, including those of earlier processes
  std::int64_t total = 0;     // 0: unknown
  std::int64_t rows = 0;      // over all heads
  std::int64_t tokens = 0;
};

// Options of run_capture().
struct CaptureOptions {
  Shard shard;
  bool overwrite = false;                   // replace the capture in the folder; false: resume it
  bool quiet = false;                       // no progress display
  const std::atomic<bool>* stop = nullptr;  // set to true to end the run after the current batch
  // Called after every batch on the calling thread. Must not throw; set `stop` to end the run.
  std::function<void(const CaptureProgress&)> on_batch = {};
};

// Result of run_capture() and merge_capture().
struct CaptureResult {
  using Outcome = RunOutcome;
  Outcome outcome = Outcome::finished;
  std::int64_t examples = 0;
  std::int64_t rows = 0;  // over all heads
  std::int64_t tokens = 0;
  std::int64_t non_finite = 0;    // rows with NaN or infinity, if keep_non_finite is set
  double seconds = 0.0;           // of the whole call, which includes:
  double load_seconds = 0.0;      // until the model was ready
  double forward_seconds = 0.0;   // in forward passes
  double input_seconds = 0.0;     // waiting for texts to be read and tokenized
  double assembly_seconds = 0.0;  // writing the final files
};

QKSCOPE_API std::string_view outcome_name(CaptureResult::Outcome outcome);  // "part finished"

// Returns a JSON object with outcome, examples, rows, tokens and seconds.
QKSCOPE_API std::string result_json(const CaptureResult& result);

// Runs or resumes a capture into config.output.data_root. Throws a bad-input error if another
// process is writing to that folder.
QKSCOPE_API CaptureResult run_capture(const CapturePlan& plan, const CaptureOptions& options = {});

// Divides the run into `count` shards, captures the incomplete shards in order, then merges all
// shards. Ignores options.shard. Returns early with the outcome `interrupted` when stopped.
QKSCOPE_API CaptureResult run_capture_shards(const CapturePlan& plan, std::int64_t count,
                                             const CaptureOptions& options = {});

// Writes the final files of a sharded capture once every shard is complete. Throws a bad-input
// error that names the missing shards.
QKSCOPE_API CaptureResult merge_capture(const std::string& data_root, bool quiet = false);

}  // namespace qkscope
