#include "capture/run/run_inputs.h"

#include <filesystem>
#include <map>

#include "base/core/thread_pool.h"
#include "base/io/checksum.h"
#include "base/io/folder.h"
#include "capture/run/example_source.h"
#include "input/checkpoint/checkpoint.h"
#include "input/texts/dataset_files.h"
#include "input/tokenizer/tokenizer_file.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

using Files = std::map<std::string, std::string>;  // displayed name to path

Files in_folder(const std::string& folder, const std::vector<std::string>& names) {
  Files files;
  for (const auto& name : names)
    if (auto path = (fs::path(folder) / name).string(); path_exists(path)) files[name] = path;
  return files;
}

// Names `paths` relative to `root`; a root that is a file is named by its file name.
Files below(const std::string& root, const std::vector<std::string>& paths) {
  Files files;
  for (const auto& path : paths) {
    const auto name = fs::path(path).lexically_relative(root).string();
    files[name == "." ? fs::path(path).filename().string() : name] = path;
  }
  return files;
}

// Files of a tokenizer: tokenizer.json or a given file, and tokenizer_config.json; or a GGUF file.
Files tokenizer_files(const std::string& folder_or_file) {
  if (const auto gguf = tokenizer_gguf(folder_or_file); !gguf.empty())
    return below(folder_or_file, {gguf});
  if (is_folder(folder_or_file))
    return in_folder(folder_or_file, {"tokenizer.json", "tokenizer_config.json"});
  const fs::path file = folder_or_file;
  return in_folder(parent_folder(folder_or_file),
                   {file.filename().string(), "tokenizer_config.json"});
}

Files dataset_files(const RunPlan& plan) {
  if (!path_exists(plan.dataset_path)) return {};
  return below(plan.dataset_path, find_corpus_files(corpus_options(plan, {})));
}

Json fingerprints(const Files& files) {
  const std::vector<std::pair<std::string, std::string>> list(files.begin(), files.end());
  std::vector<std::string> prints(list.size());
  parallel_for(static_cast<std::int64_t>(list.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    prints[at] = file_fingerprint(list[at].second);
  });
  Json json = Json::object();
  for (std::size_t i = 0; i < list.size(); ++i) json[list[i].first] = prints[i];
  return json;
}

using Kinds = std::map<std::string, Files>;

Kinds small_files(const RunPlan& plan) {
  return {{"config", in_folder(plan.model_folder, {"config.json"})},
          {"tokenizer", tokenizer_files(plan.tokenizer_folder)}};
}

Json fingerprints_of(const Kinds& kinds) {
  Json inputs = Json::object();
  for (const auto& [kind, files] : kinds)
    if (!files.empty()) inputs[kind] = fingerprints(files);
  return inputs;
}

}  // namespace

Json fingerprint_small_inputs(const RunPlan& plan) {
  return fingerprints_of(small_files(plan));
}

Json fingerprint_inputs(const RunPlan& plan) {
  auto kinds = small_files(plan);
  kinds["weights"] = below(plan.model_folder, weight_files(plan.model_folder));
  kinds["dataset"] = dataset_files(plan);
  return fingerprints_of(kinds);
}

Manifest manifest_with_inputs(const RunPlan& plan) {
  Manifest manifest = plan.manifest;
  manifest.identity[kInputs] = fingerprint_inputs(plan);
  return manifest;
}

}  // namespace qkscope
