#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "input/texts/dataset_files.h"

namespace qkscope {
namespace {

// One entry of `configs:` in a dataset card (README.md), which maps splits to files.
struct DatasetCardConfig {
  std::string name = "default";
  bool is_default = false;
  std::string data_dir;                                   // "" for the whole repository
  std::map<std::string, std::vector<std::string>> files;  // split → glob patterns
};

// Returns the YAML text between the first two "---" lines.
std::string extract_yaml_front_matter(std::string_view card) {
  if (!card.starts_with("---\n") && !card.starts_with("---\r\n")) return "";
  const auto begin = card.find('\n') + 1;
  const auto end = card.find("\n---", begin - 1);
  return end == std::string_view::npos ? "" : std::string(card.substr(begin, end - begin + 1));
}

constexpr std::size_t kMaxCardBytes = std::size_t{16} << 20;  // bytes of front matter
constexpr int kMaxPatterns = 200'000;  // in all configurations; YAML aliases may repeat long lists

void add_file_patterns(const std::string& split, const YAML::Node& node, DatasetCardConfig& config,
                       int& patterns_left) {
  auto& files = config.files[split];
  const auto add_one = [&](const YAML::Node& item) {
    if (!item.IsScalar()) return;
    if (--patterns_left < 0)
      throw YAML::RepresentationException(
          node.Mark(), fmt::format("more than {} patterns of files", kMaxPatterns));
    files.push_back(item.Scalar());
  };
  add_one(node);
  if (node.IsSequence())
    for (const auto& item : node) add_one(item);
}

// Parses `data_files`: a pattern, a list of patterns or {split, path}, or a map {split: patterns}.
void parse_data_files_node(const YAML::Node& node, DatasetCardConfig& config, int& patterns_left) {
  if (node.IsScalar()) add_file_patterns("train", node, config, patterns_left);
  if (node.IsMap())
    for (const auto& entry : node)
      add_file_patterns(entry.first.as<std::string>(), entry.second, config, patterns_left);
  if (!node.IsSequence()) return;
  for (const auto& item : node) {
    if (item.IsScalar()) add_file_patterns("train", item, config, patterns_left);
    if (item.IsMap() && item["path"])
      add_file_patterns(item["split"] ? item["split"].as<std::string>() : "train", item["path"],
                        config, patterns_left);
  }
}

DatasetCardConfig read_config(const YAML::Node& node, int& patterns_left) {
  DatasetCardConfig config;
  if (node["config_name"]) config.name = node["config_name"].as<std::string>();
  if (node["default"]) config.is_default = node["default"].as<bool>();
  if (node["data_dir"]) config.data_dir = node["data_dir"].as<std::string>();
  while (config.data_dir.ends_with('/')) config.data_dir.pop_back();
  if (node["data_files"]) parse_data_files_node(node["data_files"], config, patterns_left);
  return config;
}

// Returns the `configs:` entries of the front matter, or none. Invalid YAML is ignored with a
// warning that starts with `where`.
std::vector<DatasetCardConfig> read_card_configs(std::string_view card, const std::string& where) {
  std::vector<DatasetCardConfig> configs;
  const auto text = extract_yaml_front_matter(card);
  if (text.empty()) return configs;
  int patterns_left = kMaxPatterns;
  try {
    if (text.size() > kMaxCardBytes)
      throw YAML::RepresentationException(
          YAML::Mark(), fmt::format("it is larger than {}", format_bytes(kMaxCardBytes)));
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap() || !root["configs"] || !root["configs"].IsSequence()) return configs;
    for (const auto& node : root["configs"])
      if (node.IsMap()) configs.push_back(read_config(node, patterns_left));
  } catch (const YAML::Exception& error) {
    log::warn(
        "{}: the front matter of the card is not understood (line {}: {}); files are chosen "
        "by their names",
        where, error.mark.line + 2, error.msg);
    return {};
  }
  return configs;
}

namespace fs = std::filesystem;

using Paths = std::vector<std::string>;

std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 == 0
}

bool is_data_file(std::string_view path) {
  return std::ranges::any_of(kDataEndings, [&](auto ending) { return path.ends_with(ending); });
}

// Matches "train.parquet", "train-00000-of-00002.parquet" and "train_0.jsonl", but not
// "training.csv".
bool is_file_of_split(std::string_view path, const std::string& split) {
  const auto name = file_name(path);
  return name.starts_with(split) && name.size() > split.size() &&
         std::isalnum(static_cast<unsigned char>(name[split.size()])) == 0;
}

// Returns the data files directly inside a folder ("" or "a/b/"), sorted.
Paths data_files_in_folder(const Paths& paths, const std::string& folder) {
  Paths files;
  for (const auto& path : paths)
    if (path.starts_with(folder) && path.find('/', folder.size()) == std::string::npos &&
        is_data_file(path) && !file_name(path).starts_with('.'))
      files.push_back(path);
  std::ranges::sort(files);
  return files;
}

Paths keep_preferred_format(const Paths& files, const std::string& where) {
  Paths chosen;
  for (const auto ending : kDataEndings) {
    std::ranges::copy_if(files, std::back_inserter(chosen),
                         [&](const auto& path) { return path.ends_with(ending); });
    if (!chosen.empty()) break;
  }
  if (chosen.size() < files.size())
    log::warn("{}: reading the {} files of the kind of {}, not the {} others", where, chosen.size(),
              chosen.front(), files.size() - chosen.size());
  return chosen;
}

[[noreturn]] void throw_no_split_files(const Paths& paths, const std::string& split,
                                       const std::string& where) {
  constexpr std::size_t kMaxListed = 10;
  Paths data;
  for (const auto& path : paths)
    if (is_data_file(path) && data.size() < kMaxListed) data.push_back(path);
  reject("{}: no data files for the split '{}'. {}", where, split,
         data.empty() ? "There are no .parquet, .jsonl, .json, .csv or .txt files in it."
                      : fmt::format("The data files in it: {}", fmt::join(data, ", ")));
}

Paths select_files_by_split_name(const Paths& paths, const std::string& base,
                                 const std::string& split, const std::string& where) {
  for (const auto& folder : {base + "data/", base}) {
    auto files = data_files_in_folder(paths, folder);
    std::erase_if(files, [&](const std::string& path) { return !is_file_of_split(path, split); });
    if (!files.empty()) return keep_preferred_format(files, where);
  }
  for (const auto& folder :
       {fmt::format("{}data/{}/", base, split), fmt::format("{}{}/", base, split)})
    if (const auto files = data_files_in_folder(paths, folder); !files.empty())
      return keep_preferred_format(files, where);
  // Files whose names do not mention a split belong to the train split.
  const auto files = data_files_in_folder(paths, base);
  const bool named = std::ranges::any_of(files, [](const std::string& path) {
    return is_file_of_split(path, "test") || is_file_of_split(path, "validation");
  });
  if (files.empty() || named || split != "train") throw_no_split_files(paths, split, where);
  return keep_preferred_format(files, where);
}

// Returns the paths that match any pattern of a dataset card, sorted.
Paths find_matching_paths(const Paths& paths, const Paths& patterns, const std::string& where) {
  // Limits glob matching to about one second; published datasets take about a millisecond.
  constexpr std::size_t kMaxComparisons = 5'000'000;
  constexpr std::size_t kMaxPatternLength = 1000;
  std::map<std::string, std::vector<std::string>> parts_of;
  for (const auto& path : paths) parts_of.emplace(path, split(path, '/'));
  std::set<std::string> matches;
  std::size_t comparisons = 0;
  for (std::string_view pattern : patterns) {
    if (pattern.starts_with("./")) pattern.remove_prefix(2);
    if (pattern.find_first_of("*?") == std::string_view::npos) {  // no wildcard
      if (parts_of.contains(std::string(pattern))) matches.emplace(pattern);
      continue;
    }
    if (pattern.size() > kMaxPatternLength || (comparisons += parts_of.size()) > kMaxComparisons)
      reject("{}: its card chooses files by more patterns than can be tried", where);
    // Compares path components: `*` stays within a folder, `**` spans folders.
    const auto pattern_parts = split(pattern, '/');
    const auto is_any_folder = [](const std::string& part) { return part == "**"; };
    for (const auto& [path, parts] : parts_of)
      if (wildcard_match(pattern_parts, parts, is_any_folder, glob_match)) matches.insert(path);
  }
  return {matches.begin(), matches.end()};
}

Paths select_files_by_dataset_card(const Paths& paths, const DatasetCardConfig& config,
                                   const CorpusOptions& options, const std::string& where) {
  const auto base = config.data_dir.empty() ? "" : config.data_dir + "/";
  if (config.files.empty()) return select_files_by_split_name(paths, base, options.split, where);
  const auto patterns = config.files.find(options.split);
  if (patterns == config.files.end())
    reject("{}: the configuration '{}' has no split '{}'; its card names: {}", where, config.name,
           options.split, fmt::join(collect_map_keys(config.files), ", "));
  Paths globs;
  for (const auto& pattern : patterns->second) globs.push_back(base + pattern);
  const Paths files = find_matching_paths(paths, globs, where);
  if (std::ranges::none_of(files, is_data_file)) throw_no_split_files(paths, options.split, where);
  return keep_preferred_format(files, where);
}

// Returns the configuration `name` or, without a name, the only or default one; null if not found.
const DatasetCardConfig* find_config(const std::vector<DatasetCardConfig>& configs,
                                     const std::optional<std::string>& name) {
  if (configs.size() == 1 && !name) return &configs.front();
  const auto found = std::ranges::find_if(configs, [&](const DatasetCardConfig& config) {
    return name ? config.name == *name : config.is_default || config.name == "default";
  });
  return found == configs.end() ? nullptr : &*found;
}

Paths select_files_by_config_name(const Paths& paths, const CorpusOptions& options,
                                  const std::string& where) {
  const auto& name = *options.name;
  for (const auto& base : {name + "/", "data/" + name + "/"})
    if (std::ranges::any_of(paths, [&](const auto& path) { return path.starts_with(base); }))
      return select_files_by_split_name(paths, base, options.split, where);
  std::set<std::string> folders;
  for (const auto& path : paths)
    if (const auto slash = path.find('/'); slash != std::string::npos)
      folders.insert(path.substr(0, slash));
  reject("{}: there is no configuration '{}'; the folders in it: {}", where, name,
         folders.empty() ? "none" : fmt::format("{}", fmt::join(folders, ", ")));
}

// Returns all files below a folder, relative to it. Hidden folders are skipped.
std::vector<std::string> list_files_recursively(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; at != end; at.increment(error)) {
    std::error_code ignored;
    const bool hidden = at->path().filename().string().starts_with('.');
    if (at->is_directory(ignored) && hidden) at.disable_recursion_pending();
    if (at->is_regular_file(ignored))
      files.push_back(at->path().lexically_relative(folder).string());
  }
  if (error) throw_system_error("list the folder", folder.string(), error.value());
  return files;
}

}  // namespace

std::vector<std::string> choose_dataset_files(const std::vector<std::string>& paths,
                                              const std::string& card, const CorpusOptions& options,
                                              const std::string& where) {
  const auto configs = read_card_configs(card, where);
  if (const auto* config = find_config(configs, options.name))
    return select_files_by_dataset_card(paths, *config, options, where);
  if (options.name) return select_files_by_config_name(paths, options, where);
  if (configs.empty()) return select_files_by_split_name(paths, "", options.split, where);
  reject("{}: the dataset has several configurations; choose one by name: {}", where,
         fmt::join(to_vector(configs, &DatasetCardConfig::name), ", "));
}

std::vector<std::string> find_corpus_files(const CorpusOptions& options) {
  const fs::path path = options.path;
  if (!path_exists(options.path))
    reject("{}: no such file or folder (a dataset of the Hub must be downloaded first)",
           options.path);
  if (!is_folder(options.path)) return {options.path};
  const auto card = (path / "README.md").string();
  auto files = choose_dataset_files(list_files_recursively(path),
                                    path_exists(card) ? std::string(MappedFile(card).text()) : "",
                                    options, options.path);
  for (auto& file : files) file = (path / file).string();
  return files;
}

}  // namespace qkscope
