#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/weight_index.h"
#include "core/error.h"
#include "core/text.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/mapped_file.h"

namespace qkscope {
namespace {

constexpr const char* kSingleFile = "model.safetensors";

std::string join(const std::string& folder, const std::string& file) {
  return (std::filesystem::path(folder) / file).string();
}

// For a message: the first few names.
std::string listing(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 12;
  if (names.empty()) return "nothing";
  const auto shown = std::span(names).first(std::min(kMost, names.size()));
  const auto text = fmt::format("{}", fmt::join(shown, ", "));
  return names.size() > kMost ? fmt::format("{} and {} more", text, names.size() - kMost) : text;
}

bool is_pickle(const std::string& name) {
  return glob_match("pytorch_model*.bin", name) || name == "pytorch_model.bin.index.json" ||
         glob_match("consolidated*.pth", name);
}

[[noreturn]] void refuse_without_weights(const std::string& folder) {
  const auto names = names_in(folder);
  for (const auto& name : names) {
    if (is_pickle(name))
      bad_input(
          "{}: the weights are a pickle checkpoint ({}), which can run code when it is read and is "
          "not supported; convert it to safetensors with transformers: "
          "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER, "
          "safe_serialization=True)",
          folder, name);
  }
  bad_input("{}: no weights: expected {} or {} with its shards; the folder holds {}", folder,
            kSingleFile, kWeightIndexFile, listing(names));
}

std::map<std::string, std::string> load_weight_index(const std::string& folder) {
  const MappedFile file(join(folder, kWeightIndexFile));
  return parse_weight_index(file.text(), file.path());
}

// All shards must be there before any is read: the message names what a download left out.
void check_shards(const std::string& folder, const std::set<std::string>& shards) {
  std::vector<std::string> missing;
  for (const auto& shard : shards)
    if (!path_exists(join(folder, shard))) missing.push_back(shard);
  if (!missing.empty())
    bad_input("{}: {} of {} shards named in {} are missing: {}; download them", folder,
              missing.size(), shards.size(), kWeightIndexFile, listing(missing));
}

std::set<std::string> shards_of(const std::map<std::string, std::string>& weight_index) {
  std::set<std::string> shards;
  for (const auto& [name, shard] : weight_index) shards.insert(shard);
  return shards;
}

}  // namespace

std::vector<std::string> weight_files(const std::string& folder) {
  if (path_exists(join(folder, kSingleFile))) return {kSingleFile};
  if (!path_exists(join(folder, kWeightIndexFile))) return {};
  std::vector<std::string> files = {kWeightIndexFile};
  for (const auto& shard : shards_of(load_weight_index(folder))) {
    if (!path_exists(join(folder, shard))) return {};
    files.push_back(shard);
  }
  return files;
}

Json load_config(const std::string& folder) {
  if (!path_exists(folder)) bad_input("{}: no such folder; expected a checkpoint folder", folder);
  if (!is_folder(folder))
    bad_input("{}: not a folder; expected a checkpoint folder with config.json and weights",
              folder);
  const auto path = join(folder, "config.json");
  if (!path_exists(path))
    bad_input("{}: no config.json in this folder; expected a Hugging Face checkpoint", folder);
  Json config = load_json(path);
  if (!config.is_object())
    bad_input("{}: found a JSON {}, expected a map of the model's settings", path,
              config.type_name());
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

Checkpoint::Checkpoint() = default;
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

Checkpoint Checkpoint::open(const std::string& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.config_ = std::make_unique<const Json>(load_config(folder));
  if (path_exists(join(folder, kSingleFile)))
    checkpoint.open_single(kSingleFile);
  else if (path_exists(join(folder, kWeightIndexFile)))
    checkpoint.open_shards();
  else
    refuse_without_weights(folder);
  checkpoint.add_aliases();
  return checkpoint;
}

void Checkpoint::open_single(const std::string& file) {
  const auto index = add_file(file);
  for (const auto& [name, entry] : files_[index].header().tensors) add_tensor(name, index);
}

void Checkpoint::open_shards() {
  const auto shard_of = load_weight_index(folder_);
  const auto shards = shards_of(shard_of);
  check_shards(folder_, shards);
  std::map<std::string, std::size_t> index_of;
  for (const auto& shard : shards) index_of[shard] = add_file(shard);
  for (const auto& [name, shard] : shard_of) {
    const auto index = index_of[shard];
    if (!files_[index].header().tensors.contains(name))
      bad_input("{}: {} puts tensor {} into {}, which does not hold it", folder_, kWeightIndexFile,
                in_quotes(name), shard);
    add_tensor(name, index);
  }
}

std::size_t Checkpoint::add_file(const std::string& file) {
  files_.emplace_back(join(folder_, file));
  file_names_.push_back(file);
  return files_.size() - 1;
}

void Checkpoint::add_tensor(const std::string& name, std::size_t file) {
  const TensorEntry& entry = files_[file].header().tensors.at(name);
  tensors_.emplace(name,
                   Place{{name, entry.shape, entry.stored_dtype, file_names_[file]}, file, name});
  bytes_ += entry.end - entry.begin;
}

// Writers drop a tensor that shares its memory with another and note in the metadata
// "dropped name": "kept name". Any other metadata names no tensor and is ignored.
void Checkpoint::add_aliases() {
  for (const auto& file : files_) {
    for (const auto& [alias, stored] : file.header().metadata) {
      const auto target = tensors_.find(stored);
      if (target == tensors_.end() || target->second.stored != stored) continue;
      Place place = target->second;
      place.info.name = alias;
      tensors_.emplace(alias, std::move(place));
    }
  }
}

const Checkpoint::Place& Checkpoint::place(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  const auto near = nearest(name, names());
  bad_input(
      "{}: no tensor {} among the {} of this checkpoint{}", folder_, in_quotes(name),
      tensors_.size(),
      near.empty() ? std::string() : fmt::format("; the nearest name is {}", in_quotes(near)));
}

const TensorInfo& Checkpoint::info(const std::string& name) const {
  return place(name).info;
}

ConstTensorView Checkpoint::tensor(const std::string& name) const {
  const Place& found = place(name);
  return files_[found.file].tensor(found.stored);
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

std::vector<std::string> indexed_tensor_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& [name, shard] : load_weight_index(folder)) names.push_back(name);
  return names;
}

}  // namespace qkscope
