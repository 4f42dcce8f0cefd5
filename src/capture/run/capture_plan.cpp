#include "capture/run/capture_plan.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/folder.h"
#include "capture/format/metadata.h"
#include "engine/device/memory_plan.h"
#include "input/checkpoint/checkpoint.h"
#include "input/checkpoint/hub_cache.h"
#include "qkscope/experimental/store.h"
#include "qkscope/version.h"

namespace qkscope {
namespace {

std::map<std::string, EngineFactory>& engine_registry() {
  static std::map<std::string, EngineFactory> registered;
  return registered;
}

std::string python_command(const CaptureConfig& config) {
  return fmt::format("python3 -m qkscope {} --config {} --set engine=transformers", config.command,
                     config.file.empty() ? "FILE" : config.file);
}

// Returns the external engine that the configuration names, or null for the native engine.
std::shared_ptr<ExternalEngine> make_engine(const CaptureConfig& config,
                                            const ComputeOptions& compute) {
  if (config.engine == kNativeEngine) return nullptr;
  const auto found = engine_registry().find(config.engine);
  if (found != engine_registry().end()) return found->second(config, compute);
  if (config.engine != kTransformersEngine)
    reject("engine: found {}, expected native or transformers", quote_text(config.engine));
  reject("engine: transformers runs from Python only: {}", python_command(config));
}

// Returns the commit if the folder is a snapshot in the Hugging Face cache, else "".
std::string snapshot_commit(const std::string& folder) {
  const auto path = std::filesystem::path(folder).lexically_normal();
  const bool snapshot = path.parent_path().filename() == "snapshots";
  return snapshot ? path.filename().string() : "";
}

Json rope_json(const RopeConfig& rope) {
  Json json = {{"type", rope_type_name(rope.type)}, {"theta", rope.theta}, {"dim", rope.dim}};
  if (rope.begin > 0) json["begin"] = rope.begin;
  if (rope.type == RopeType::standard) return json;
  json["factor"] = rope.factor;
  if (rope.original_max > 0) json["original_max_position_embeddings"] = rope.original_max;
  if (rope.type == RopeType::yarn) {
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
    if (rope.mscale != 0.0) json["mscale"] = rope.mscale;
    if (rope.mscale_all_dim != 0.0) json["mscale_all_dim"] = rope.mscale_all_dim;
  }
  if (rope.type == RopeType::proportional) json["rotated_pairs"] = rope.rotated_pairs;
  if (rope.attention_factor) json["attention_factor"] = *rope.attention_factor;
  if (rope.type == RopeType::llama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
  }
  return json;
}

Stage captured_stage(const ModelConfig& model, bool pre_rope, HeadKind kind) {
  const bool query = kind == HeadKind::query;
  if (!pre_rope) return query ? Stage::rot_q : Stage::rot_k;
  if (model.qk_norm) return query ? Stage::q_normed : Stage::k_normed;
  return query ? Stage::q : Stage::k;
}

HeadGroup make_head_group(const RunPlan& plan, std::int64_t layer, HeadKind kind,
                          const std::set<std::int64_t>& heads) {
  HeadGroup group;
  group.layer = layer;
  group.kind = kind;
  group.heads.assign(heads.begin(), heads.end());
  const auto& of_layer = plan.model.layer(layer);
  group.head_dim = of_layer.d_head;
  if (of_layer.n_kv_heads > 0) group.heads_per_key_head = plan.model.n_heads / of_layer.n_kv_heads;
  if (of_layer.window > 0) group.window = static_cast<std::int32_t>(of_layer.window);
  group.rope = metadata::kRopeNone;
  if (plan.engine) {
    const auto& rope = plan.engine->model().ropes[static_cast<std::size_t>(layer)];
    group.rope = rope.description;
    if (!rope.inv_freq.empty()) group.rope_inv_freq = Json(rope.inv_freq).dump();
  } else if (const auto* rope = plan.model.rope(layer)) {
    Json json = rope_json(*rope);
    if (plan.config.capture.pre_rope ? plan.model.rope_interleaved
                                     : plan.model.rotated_pairs_interleaved())
      json["interleaved"] = true;
    group.rope = json.dump();
    const auto frequencies = rope_frequencies(*rope, plan.config.tokenizer.max_length);
    group.rope_inv_freq = Json(frequencies.inverse).dump();
  }
  return group;
}

void add_head_groups(RunPlan& plan) {
  const auto& capture = plan.config.capture;
  const auto add = [&](std::int64_t layer, HeadKind kind, const std::set<std::int64_t>& heads) {
    plan.manifest.groups.push_back(make_head_group(plan, layer, kind, heads));
    plan.points.push_back({captured_stage(plan.model, capture.pre_rope, kind), layer});
  };
  for (const auto& [layer, heads] : plan.selection.layers) {
    if (capture.queries) add(layer, HeadKind::query, heads.queries);
    const auto source = plan.model.layer(layer).kv_layer;
    if (capture.keys && capture.pre_rope && source >= 0)
      reject("capture.capture_pre_rope: layer {} uses the rotated keys of layer {}; {}", layer,
             source, "capture earlier layers, or queries alone");
    if (capture.keys) add(layer, HeadKind::key, heads.keys);
  }
}

Metadata common_head_metadata(const RunPlan& plan) {
  const auto commit = snapshot_commit(plan.model_folder);
  Metadata values = {{metadata::kModel, plan.config.model.name},
                     {metadata::kRevision, plan.config.model.revision.value_or("main")},
                     {metadata::kStage, plan.config.capture.pre_rope ? "pre_rope" : "post_rope"},
                     {metadata::kDtype, std::string(dtype_name(plan.backend.dtype))},
                     {metadata::kDevice, device_name(plan.backend.device)},
                     {metadata::kVersion, version_string()}};
  if (!commit.empty()) values[metadata::kCommit] = commit;
  if (plan.engine) {
    values[metadata::kEngine] = plan.engine->model().engine;
    if (!plan.dataset_path.empty())
      values[metadata::kTokenizer] = plan.engine_tokenizes ? "engine" : "qkscope";
  }
  return values;
}

void fill_manifest(RunPlan& plan, bool alone) {
  auto& manifest = plan.manifest;
  const auto effective = effective_config(plan.config);
  manifest.config_hash = config_hash(effective);
  manifest.identity = effective;
  manifest.identity["device"] = device_name(plan.backend.device);
  if (alone) manifest.identity["deterministic"] = true;
  if (plan.engine) {
    const auto& model = plan.engine->model();
    manifest.identity["engine"] = {{"name", model.engine},
                                   {"model", parse_json(model.identity, "identity of the engine")}};
  }
  manifest.identity["commit"] = snapshot_commit(plan.model_folder);
  manifest.identity["dataset_commit"] = snapshot_commit(plan.dataset_path);
  manifest.head_dim = plan.model.d_head;
  manifest.heads_per_key_head = plan.model.heads_per_kv_head();
  manifest.row_group_size = plan.config.output.write_batch_size;
  manifest.token_strings = plan.config.capture.token_strings;
  manifest.sampler = plan.config.capture.sampler;
  manifest.metadata = common_head_metadata(plan);
  manifest.model_name = plan.config.model.name;
  manifest.model_metadata = plan.selection.metadata;
  const auto& dataset = plan.config.dataset;
  manifest.model_metadata["source_dataset"] = dataset.path;
  manifest.model_metadata["dataset_split"] = dataset.split;
  if (dataset.name) manifest.model_metadata["dataset_name"] = *dataset.name;
  manifest.model_metadata["model_revision"] = plan.config.model.revision.value_or("main");
  manifest.model_metadata["max_length"] = plan.config.tokenizer.max_length;
  manifest.repo = plan.config.output.hf_repo_id.value_or("");
  manifest.branch = plan.config.output.hf_branch.value_or("");
  manifest.private_repo = plan.config.output.private_repo;
  add_head_groups(plan);
}

bool runs_on_cuda(const RunPlan& plan) {
  return plan.backend.device.kind == Device::Kind::cuda;
}

void check_chunk_fits_context(const RunPlan& plan) {
  auto context = static_cast<double>(plan.model.max_positions);
  for (const auto& rope : plan.model.ropes)
    context = std::max(context, static_cast<double>(rope.original_max) * rope.factor);
  if (const auto chunk = plan.config.tokenizer.chunk.size; static_cast<double>(chunk) > context)
    reject("tokenizer.chunk is {}, and the context of {} is {:.0f} tokens; choose a smaller chunk",
           chunk, plan.config.model.name, context);
}

// Chooses device and dtype. The CPU always computes in float32 from the stored weights.
BackendOptions choose_backend(const CaptureConfig& config, const ComputeOptions& compute) {
  BackendOptions backend;
  backend.device =
      !compute.devices.empty()
          ? choose_devices(compute.devices).front()
          : choose_device(compute.device.empty() ? config.model.device_map : compute.device);
  const auto wanted = config.inference.autocast_dtype.value_or(config.model.dtype);
  const bool cpu = backend.device.kind == Device::Kind::cpu;
  backend.dtype = cpu ? DType::f32 : wanted;
  if (cpu && wanted != DType::f32)
    log::info("model.dtype {}: the CPU computes in float32 from the stored weights",
              dtype_name(wanted));
  return backend;
}

// Creates one worker per device; workers on the same GPU get equal shares of its memory. Packs
// short documents only on CUDA, because packing does not speed up the CPU.
void plan_batches(RunPlan& plan, const ComputeOptions& compute) {
  const bool alone = runs_on_cuda(plan) && compute.deterministic;
  const auto documents = alone ? 1 : plan.config.inference.batch_size;
  const auto max_length = plan.config.tokenizer.max_length;
  if (plan.engine) {
    plan.workers = {plan.backend};
    plan.packing.examples = plan.config.inference.batch_size;
    return;
  }
  const auto devices =
      compute.devices.empty() ? std::vector{plan.backend.device} : choose_devices(compute.devices);
  for (const auto device : devices) {
    auto& worker = plan.workers.emplace_back(plan.backend);
    worker.device = device;
    worker.device_memory = compute.device_memory;
    const auto sharing = std::ranges::count(devices, device);
    if (runs_on_cuda(plan) && sharing > 1)
      worker.device_memory = usable_memory_bytes(worker) / sharing;
  }
  plan.backend = plan.workers.front();
  plan.memory = plan_memory(plan.model, plan.backend,
                            {.documents = documents,
                             .max_length = max_length,
                             .tokens = alone ? max_length : compute.batch_tokens},
                            std::ranges::min(to_vector(plan.workers, usable_memory_bytes)));
  plan.packing.examples = documents;
  if (!runs_on_cuda(plan)) return;
  if (!alone) plan.packing.tokens = plan.memory.batch_tokens;
  plan.backend.longest_batch = plan.memory.batch_tokens;
  for (auto& worker : plan.workers) worker.longest_batch = plan.memory.batch_tokens;
}

std::string resolve_tokenizer(const CaptureConfig& config) {
  const auto tokenizer = fetch_input(config.tokenizer.name, {.weights = false});
  return path_exists(tokenizer)
             ? tokenizer
             : resolve_checkpoint_path(tokenizer, config.tokenizer.revision.value_or(""));
}

// Uses the model that the engine has loaded. Tokenizes with the tokenizer named in the
// configuration if this library supports it, else with the engine's tokenizer.
void plan_external_engine(RunPlan& plan) {
  const auto& model = plan.engine->model();
  const auto& c = model.config;
  if (c.n_layers < 1 || c.n_kv_heads < 1 || c.d_head < 1 || c.n_heads < 1 ||
      c.n_heads % c.n_kv_heads != 0 || std::ssize(c.layers) != c.n_layers ||
      std::ssize(model.ropes) != c.n_layers)
    reject(
        "model of the engine: {} layers ({} described, {} with RoPE), {} query heads, {} key heads "
        "of width {}; expected a description of every layer, and query heads that share key heads "
        "equally",
        c.n_layers, c.layers.size(), model.ropes.size(), c.n_heads, c.n_kv_heads, c.d_head);
  plan.model = c;
  plan.backend = {.device = model.device, .dtype = model.dtype};
  if (plan.config.capture.pre_rope)
    reject("capture.capture_pre_rope: {} hands out q and k after RoPE only", model.engine);
  const auto& path = plan.config.dataset.path;
  if (path == kDocumentsOfCaller) return;
  plan.dataset_path = resolve_dataset_path(fetch_input(path, {}));
  try {
    plan.tokenizer_folder = resolve_tokenizer(plan.config);
    plan.tokenizer = start_loading_tokenizer(plan);
    plan.tokenizer.get();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_input) throw;
    log::info("{}; texts are tokenized by {}", error.what(), model.engine);
    plan.tokenizer = {};
    plan.tokenizer_folder.clear();
    plan.engine_tokenizes = true;
    if (plan.config.tokenizer.chunk.size > 0 || plan.config.capture.token_strings)
      reject(
          "tokenizer.chunk and capture.capture_token_strings need a tokenizer that qkscope "
          "reads: {}",
          error.what());
  }
}

// Finds the checkpoint, the tokenizer and the dataset, and reads config.json.
void locate_inputs(RunPlan& plan) {
  const auto& config = plan.config;
  plan.model_folder = resolve_checkpoint_path(fetch_input(config.model.name, {.weights = false}),
                                              config.model.revision.value_or(""));
  plan.tokenizer_folder = resolve_tokenizer(config);
  if (runs_on_cuda(plan)) plan.tokenizer = start_loading_tokenizer(plan);  // while CUDA initializes
  plan.dataset_path = resolve_dataset_path(fetch_input(config.dataset.path, {}));
  auto json = load_config(plan.model_folder);
  if (const auto overrides = config_overrides(config.model); !overrides.is_null())
    json = merge_overrides(std::move(json), overrides);
  const auto where = config_path(plan.model_folder);
  if (const auto type = json.find("model_type");
      type != json.end() && type->is_string() && !is_supported_model_type(*type))
    reject(
        "{}: model_type {} is not supported by the native engine ('qkscope inspect --help' lists "
        "what is); to run it through transformers: {}",
        where, quote_text(type->get<std::string>()), python_command(config));
  plan.model = parse_model_config(json, where);
}

// Maximum tokens per batch: more than any memory can hold, but sizes in bytes still fit int64_t.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

}  // namespace

void register_engine(const std::string& name, EngineFactory factory) {
  engine_registry()[name] = std::move(factory);
}

Tokenizer::Encoding ExternalEngine::encode(const std::string&, std::int64_t) {
  reject("{}: has no tokenizer; set tokenizer.name to a folder with a tokenizer.json",
         model().engine);
}

MemoryPlan plan_memory(const ModelConfig& model, const BackendOptions& options,
                       const BatchRequirements& needs, std::int64_t available) {
  MemoryPlan plan;
  const auto least = needs.max_length > kMostTokens / needs.documents
                         ? kMostTokens
                         : needs.documents * needs.max_length;
  if (options.device.kind == Device::Kind::cpu) {
    // On the CPU, weights stay mapped from the file, but block-scaled FP8 is expanded to float32.
    const bool wide = model.stored_dtype == "float32" || !model.fp8_block.empty();
    plan.weights = plan.held_weights = parameter_count(model) * (wide ? 4 : 2);
    plan.batch_tokens = least;
  } else {
    plan.available = available;
    plan.weights = plan.held_weights = device_weight_bytes(model, options.dtype);
    const auto most = [&](std::int64_t by_default) {
      const auto asked = needs.tokens > 0 ? std::min(needs.tokens, kMostTokens) : by_default;
      const auto wanted = std::max(least, asked);
      if (available == 0) return wanted;
      return max_batch_tokens(model, options, wanted, available - plan.held_weights);
    };
    plan.batch_tokens = most(kBatchTokens);
    if (plan.batch_tokens < least) {
      plan.held_weights = streamed_weight_bytes(model, options.dtype);
      plan.batch_tokens = most(kStreamingBatchTokens);
    }
    if (plan.batch_tokens < least) {
      const auto length = plan.batch_tokens / needs.documents;
      reject(
          "device {}: {} document{} of {} tokens need{} {} of activations beside {} of weights "
          "(two layers at a time), and {} may be taken; {}",
          device_name(options.device), format_count(needs.documents),
          needs.documents == 1 ? "" : "s", format_count(needs.max_length),
          needs.documents == 1 ? "s" : "", format_bytes(activation_bytes(model, least, options)),
          format_bytes(plan.held_weights), format_bytes(plan.available),
          length > 0 ? fmt::format("tokenizer.max_length={} would fit", length)
                     : "not even one token fits");
    }
  }
  plan.activations = activation_bytes(model, plan.batch_tokens, options);
  return plan;
}

std::shared_future<Tokenizer> start_loading_tokenizer(const RunPlan& plan) {
  if (plan.tokenizer.valid()) return plan.tokenizer;
  return run_in_background([folder = plan.tokenizer_folder] { return Tokenizer::load(folder); });
}

RunPlan make_run_plan(const CaptureConfig& config, const ComputeOptions& compute,
                      std::shared_ptr<ExternalEngine> engine) {
  RunPlan plan;
  plan.config = config;
  plan.keep_non_finite = config.capture.keep_non_finite;
  if (compute.dtype) {
    plan.config.model.dtype = *compute.dtype;
    plan.config.inference.autocast_dtype.reset();
  }
  plan.engine = engine ? std::move(engine) : make_engine(config, compute);
  if (plan.engine) {
    plan_external_engine(plan);
  } else {
    plan.backend = choose_backend(plan.config, compute);
    locate_inputs(plan);
    check_model_runs_on(plan.backend.device, plan.model);
  }
  check_chunk_fits_context(plan);
  plan.selection = select_heads(plan.model, config.capture.heads);
  plan_batches(plan, compute);
  fill_manifest(plan, !plan.engine && runs_on_cuda(plan) && compute.deterministic);
  return plan;
}

}  // namespace qkscope
