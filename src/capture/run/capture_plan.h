// Configuration and plan of a run: folders, selected heads, hook points, device and memory.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/io/json.h"
#include "capture/format/manifest.h"
#include "capture/writer/part_writer.h"
#include "capture/writer/selection.h"
#include "engine/device/backend.h"
#include "engine/model/model_config.h"
#include "qkscope/capture.h"
#include "qkscope/experimental/engine.h"
#include "qkscope/forward.h"
#include "qkscope/tokenizer.h"

namespace qkscope {

struct YamlDocument;
class YamlSection;

// Reads the configuration of a capture (qkscope/capture.h) from YAML.
CaptureConfig read_capture_config(const YamlDocument& document);

// Reads pairs [layer, head] such as [[3, 5], [3, 6]]; returns none if the key is missing. Throws a
// bad-input error for other values; `expected` describes the valid format in the message.
std::vector<LayerHead> read_layer_head_pairs(YamlSection& section, const std::string& key,
                                             const std::string& expected);

// Returns model.config_overrides as JSON; null if there are none.
Json config_overrides(const ModelSource& model);

// Returns the settings that determine the rows and bytes of a capture, one JSON object per section.
// Excludes the batch size, folders and the publishing destination.
Json effective_config(const CaptureConfig& config);

// Rule for packing consecutive examples into one batch.
struct BatchSizeLimits {
  std::int64_t examples = 1;  // minimum number of examples per batch
  std::int64_t tokens = 0;    // beyond the minimum, pack up to this many tokens; 0: do not pack

  // Whether a batch of `count` examples and `held` tokens can take an example of `length` tokens.
  bool can_add_example(std::int64_t count, std::int64_t held, std::int64_t length) const {
    constexpr std::int64_t kMostPacked = 1024;  // limit for very short or empty texts
    if (count < examples) return true;
    return tokens > 0 && count < kMostPacked && held + length <= tokens;
  }
};

// Default tokens per batch on a GPU: large enough to run matrix products at full speed.
constexpr std::int64_t kBatchTokens = 32768;
// Default tokens per batch if each batch copies the weights to the GPU again.
constexpr std::int64_t kStreamingBatchTokens = 2 * kBatchTokens;

struct BatchRequirements {
  std::int64_t documents = 1;   // documents that must run in one batch
  std::int64_t max_length = 0;  // tokens per document
  std::int64_t tokens = 0;      // wanted tokens per batch; 0 for the defaults above
};

// Plans memory for the model. Streams the weights layer by layer if they and the activations do not
// fit together. If the run still does not fit, a bad-input error suggests a max_length.
MemoryPlan plan_memory(const ModelConfig& model, const BackendOptions& options,
                       const BatchRequirements& needs, std::int64_t available);

// Implementation of CapturePlan (qkscope/capture.h).
struct RunPlan : PartWriterPlan {
  CaptureConfig config;
  std::shared_ptr<ExternalEngine> engine;  // null: this library runs the model
  std::string model_folder;
  std::string tokenizer_folder;
  std::shared_future<Tokenizer> tokenizer;  // loading in the background, or invalid
  bool engine_tokenizes = false;            // texts are tokenized by ExternalEngine::encode()
  std::string dataset_path;                 // "" if the caller supplies the documents
  std::vector<BackendOptions> workers;      // one per device; the first equals `backend`
  MemoryPlan memory;                        // memory of one worker
  BatchSizeLimits packing;
  ModelConfig model;
  HeadSelection selection;
};

// Reads config.json but no weights; with an external engine, reads no model files. If the
// configuration names an engine, uses the registered one unless `engine` is given. Throws a
// bad-input error if the run does not fit on the device.
RunPlan make_run_plan(const CaptureConfig& config, const ComputeOptions& compute = {},
                      std::shared_ptr<ExternalEngine> engine = nullptr);

// Returns the plan's tokenizer as a future, loading it if needed. get() throws if loading fails.
std::shared_future<Tokenizer> start_loading_tokenizer(const RunPlan& plan);

// Number of (query, key) pairs in causal attention over `length` tokens. Window 0: full attention.
double count_attended_pairs(std::int64_t length, std::int64_t window, std::int64_t chunk = 0);

// Floating-point operations of a forward pass over `length` tokens, without logits.
double forward_flop(const ModelConfig& model, std::int64_t length);

}  // namespace qkscope
