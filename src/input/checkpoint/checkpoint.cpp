#include "input/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/mapped_file.h"

namespace qkscope {
namespace {

std::string join_path(const std::string& folder, const std::string& file) {
  return (std::filesystem::path(folder) / file).string();
}

constexpr std::size_t kMaxListed = 12;

[[noreturn]] void throw_missing_weights(const std::string& folder) {
  std::string expected;
  for (const auto& format : kWeightFormats)
    expected += fmt::format("{} or {} with its shards, or ", format.single, format.index);
  reject("{}: no weights: expected {}one .gguf file; the folder holds {}", folder, expected,
         format_name_list(entry_names(folder), kMaxListed));
}

std::map<std::string, std::string> load_weight_index(const std::string& folder,
                                                     const std::string& index) {
  const MappedFile file(join_path(folder, index));
  return parse_weight_index(file.text(), file.path());
}

// Checks all shards before opening any of them, so that the message lists every missing file.
void check_shards_exist(const std::string& folder, const std::string& index,
                        const std::set<std::string>& shards) {
  std::vector<std::string> missing;
  for (const auto& shard : shards)
    if (!path_exists(join_path(folder, shard))) missing.push_back(shard);
  if (!missing.empty())
    reject("{}: {} of {} shards named in {} are missing: {}; download them", folder, missing.size(),
           shards.size(), index, format_name_list(missing, kMaxListed));
}

std::set<std::string> shard_file_names(const std::map<std::string, std::string>& weight_index) {
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_index) shards.insert(shard);
  return shards;
}

bool is_path_in_folder(const std::string& shard) {
  const std::filesystem::path path(shard);
  return !shard.empty() && shard.find('\0') == std::string::npos && path.has_filename() &&
         path.is_relative() && std::find(path.begin(), path.end(), "..") == path.end();
}

// Rewrites the bare word Infinity, which Python writes but JSON does not allow, as transformers
// does: {"__float__": "Infinity"}. Text inside strings is left unchanged.
std::string replace_infinity_literals(std::string_view text) {
  constexpr std::string_view kToken = "Infinity";
  std::string result;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (!quoted && text.substr(i).starts_with(kToken)) {
      result += R"({"__float__": "Infinity"})";
      i += kToken.size() - 1;
      continue;
    }
    result += text[i];
    if (quoted && text[i] == '\\' && i + 1 < text.size()) result += text[++i];
  }
  return result;
}

}  // namespace

std::map<std::string, std::string> parse_weight_index(std::string_view text,
                                                      const std::string& where) {
  const Json json = parse_json(text, where, DuplicateKeyPolicy::refuse);
  if (!json.is_object() || !json.contains("weight_map"))
    reject("{}: found no weight_map; expected a map with weight_map: tensor name to shard file",
           where);
  const Json& weight_map = json["weight_map"];
  if (!weight_map.is_object())
    reject("{}: weight_map: found {}, expected a map from tensor name to shard file", where,
           weight_map.type_name());
  if (weight_map.empty()) reject("{}: weight_map is empty, expected tensor names", where);

  std::map<std::string, std::string> shards;
  for (const auto& [name, value] : weight_map.items()) {
    if (!value.is_string())
      reject("{}: weight_map {}: found {}, expected the name of a shard file", where,
             quote_text(name), value.type_name());
    const auto& shard = value.get_ref<const std::string&>();
    if (!is_path_in_folder(shard))
      reject(
          "{}: weight_map puts tensor {} into {}, expected a file inside the checkpoint's folder",
          where, quote_text(name), quote_text(shard));
    shards.emplace(name, shard);
  }
  return shards;
}

std::vector<std::string> weight_files(const std::string& folder) {
  if (const auto gguf = find_gguf_file(folder); !gguf.empty()) return {gguf};
  for (const auto& format : kWeightFormats) {
    if (path_exists(join_path(folder, format.single))) return {join_path(folder, format.single)};
    if (!path_exists(join_path(folder, format.index))) continue;
    std::vector<std::string> files = {join_path(folder, format.index)};
    for (const auto& shard : shard_file_names(load_weight_index(folder, format.index))) {
      if (!path_exists(join_path(folder, shard))) return {};
      files.push_back(join_path(folder, shard));
    }
    return files;
  }
  return {};
}

std::string config_path(const std::string& folder) {
  const auto gguf = find_gguf_file(folder);
  return gguf.empty() ? join_path(folder, "config.json") : gguf;
}

Json load_config_file(const std::string& path) {
  const MappedFile file(path);
  return parse_json(replace_infinity_literals(file.text()), path);
}

Json load_config(const std::string& folder) {
  if (const auto gguf = find_gguf_file(folder); !gguf.empty()) return GgufFile(gguf).model().config;
  if (!path_exists(folder)) reject("{}: no such folder; expected a checkpoint folder", folder);
  if (!is_folder(folder))
    reject("{}: not a folder; expected a checkpoint folder with config.json and weights", folder);
  const auto path = join_path(folder, "config.json");
  if (!path_exists(path))
    reject("{}: no config.json in this folder; expected a Hugging Face checkpoint", folder);
  Json config = load_config_file(path);
  if (!config.is_object())
    reject("{}: found a JSON {}, expected a map of the model's settings", path, config.type_name());
  return config;
}

Json merge_overrides(Json config, const Json& overrides) {
  if (!config.is_object() || !overrides.is_object()) return overrides;
  for (const auto& [key, value] : overrides.items()) {
    Json& target = config[key];
    target = merge_overrides(std::move(target), value);
  }
  return config;
}

Checkpoint Checkpoint::open(const std::string& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.config_path_ = qkscope::config_path(folder);
  if (const auto gguf = find_gguf_file(folder); !gguf.empty()) {
    checkpoint.open_gguf(gguf);
    return checkpoint;
  }
  checkpoint.config_ = std::make_shared<const Json>(load_config(folder));
  for (const auto& format : kWeightFormats) {
    if (path_exists(join_path(folder, format.single))) {
      const auto file = checkpoint.add_file(format.single);
      for (const auto& [name, entry] : checkpoint.files_[file].header().tensors)
        checkpoint.add_tensor(name, file);
    } else if (path_exists(join_path(folder, format.index))) {
      checkpoint.open_shards(format.index);
    } else {
      continue;
    }
    checkpoint.add_tensor_aliases();
    return checkpoint;
  }
  throw_missing_weights(folder);
}

void Checkpoint::open_gguf(const std::string& path) {
  gguf_ = std::make_unique<const GgufFile>(path);
  config_ = std::make_shared<const Json>(gguf_->model().config);
  bytes_ = gguf_->stored_bytes();
  const auto file = std::filesystem::path(path).filename().string();
  for (const auto& [name, source] : gguf_->model().tensors)
    tensors_.emplace(
        name, TensorLocation{{name, source.shape, source.tensor->type->name, file}, 0, name});
}

void Checkpoint::open_shards(const std::string& index) {
  const auto shard_of = load_weight_index(folder_, index);
  const auto shards = shard_file_names(shard_of);
  check_shards_exist(folder_, index, shards);
  std::map<std::string, std::size_t> index_of;
  for (const auto& shard : shards) index_of[shard] = add_file(shard);
  for (const auto& [name, shard] : shard_of) {
    const auto file = index_of[shard];
    if (!files_[file].header().tensors.contains(name))
      reject("{}: {} puts tensor {} into {}, which does not hold it", folder_, index,
             quote_text(name), shard);
    add_tensor(name, file);
  }
}

std::size_t Checkpoint::add_file(const std::string& file) {
  const auto path = join_path(folder_, file);
  files_.push_back(file.ends_with(".bin") ? SafetensorsFile(path, parse_torch_zip_header)
                                          : SafetensorsFile(path));
  file_names_.push_back(file);
  return files_.size() - 1;
}

void Checkpoint::add_tensor(const std::string& name, std::size_t file) {
  const TensorHeaderEntry& entry = files_[file].header().tensors.at(name);
  tensors_.emplace(
      name, TensorLocation{{name, entry.shape, entry.stored_dtype, file_names_[file]}, file, name});
  // Several tensors in a PyTorch file may share one storage, which is counted once.
  if (counted_.emplace(file, entry.begin).second) bytes_ += entry.end - entry.begin;
}

// safetensors writers drop tensors that share memory and record {"dropped name": "kept name"} in
// the metadata. Metadata values that are not tensor names are ignored.
void Checkpoint::add_tensor_aliases() {
  for (const auto& file : files_) {
    for (const auto& [alias, stored] : file.header().metadata) {
      const auto target = tensors_.find(stored);
      if (target == tensors_.end() || target->second.stored != stored) continue;
      TensorLocation location = target->second;
      location.info.name = alias;
      tensors_.emplace(alias, std::move(location));
    }
  }
}

const Checkpoint::TensorLocation& Checkpoint::find_tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  const auto near = closest_spelling(name, tensor_names());
  reject("{}: no tensor {} among the {} of this checkpoint{}", folder_, quote_text(name),
         tensors_.size(),
         near.empty() ? std::string() : fmt::format("; the nearest name is {}", quote_text(near)));
}

ConstTensorView Checkpoint::tensor(const std::string& name) const {
  const TensorLocation& found = find_tensor(name);
  if (gguf_ != nullptr) return gguf_->tensor(found.stored);
  return files_[found.file].tensor(found.stored);
}

ConstTensorView Checkpoint::dequantized_float8(const std::string& name, const std::string& scales,
                                               const std::vector<std::int64_t>& block) const {
  return dequantized_->get_or_make(
      name, [&] { return dequantize_float8(tensor(name), tensor(scales), block); });
}

std::vector<std::string> Checkpoint::tensor_names() const {
  return collect_map_keys(tensors_);
}

ShardIndex read_shard_index(const std::string& folder) {
  for (const auto& format : kWeightFormats) {
    if (!path_exists(join_path(folder, format.index))) continue;
    const auto shard_of = load_weight_index(folder, format.index);
    return {.index = join_path(folder, format.index), .names = collect_map_keys(shard_of)};
  }
  return {};
}

}  // namespace qkscope
