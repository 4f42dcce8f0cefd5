#include "study/sweep_config.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "io/folder.h"
#include "yaml/yaml_config.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestName = 100;

// 0 to 1
void read_share(YamlSection& section, const std::string& key, double& value) {
  const auto found = section.positive_number(key);
  if (found && *found > 1.0) section.expected(key, "a number above 0, at most 1");
  value = found.value_or(value);
}

// Whether the value is the second of two words; the first is the default.
bool read_choice(YamlSection& section, const std::string& key, const std::string& first,
                 const std::string& second) {
  const auto word = section.text(key).value_or(first);
  if (word != first && word != second) section.expected(key, first + " or " + second);
  return word == second;
}

template <typename T>
void read_count(YamlSection& section, const std::string& key, T& value,
                std::int64_t most = std::numeric_limits<T>::max()) {
  const auto found = section.integer(key, 1);
  if (found && *found > most) section.expected(key, fmt::format("at most {}", most));
  if (found) value = static_cast<T>(*found);
}

// The section `analysis`: the options of `qkscope analyze` under the same names.
AnalyzeOptions read_analysis(YamlSection section) {
  AnalyzeOptions options;
  options.pca = section.boolean("pca").value_or(true);
  options.rotation = section.boolean("rotation").value_or(true);
  options.plasticity = section.boolean("plasticity").value_or(true);
  if (!options.pca && !options.rotation && !options.plasticity)
    section.expected("pca", "true, or rotation or plasticity true: one of them is run");
  read_count(section, "components", options.pca_options.components);
  read_share(section, "high", options.taxonomy.high);
  read_share(section, "low", options.taxonomy.low);
  auto& rotation = options.rotation_options;
  if (read_choice(section, "separation", "mean", "eigen"))
    rotation.separation = RotationOptions::Separation::eigen;
  read_count(section, "pairs", rotation.pairs);
  read_share(section, "active", rotation.active_angle_r);
  rotation.max_omega = section.positive_number("max_omega").value_or(rotation.max_omega);
  auto& plasticity = options.plasticity_options;
  if (read_choice(section, "query_model", "bucket", "linear"))
    plasticity.profile_model = PlasticityOptions::QueryModelKind::linear;
  read_count(section, "max_pairs", plasticity.max_pairs);
  read_share(section, "p_alpha", plasticity.p_alpha);
  read_count(section, "heatmap_bins", plasticity.heatmap_bins, 1000);
  read_count(section, "max_tokens", options.max_tokens);
  options.seed = static_cast<std::uint64_t>(section.integer("seed", 0).value_or(0));
  section.finish();
  return options;
}

// Names become folders: no separators, nothing hidden, nothing a shell takes apart.
bool is_safe_name(const std::string& name) {
  constexpr auto allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
  return !name.empty() && name.size() <= kLongestName && name.front() != '.' &&
         name.front() != '-' && name.find_first_not_of(allowed) == std::string::npos;
}

std::string required_name(YamlSection& section, const std::string& key) {
  const auto name = section.required_text(key);
  if (!is_safe_name(name))
    section.expected(key, "a name for a folder: letters, digits, '.', '_', '+' and '-'");
  return name;
}

// A relative path in a file is relative to the folder of that file.
std::string beside(const std::string& file, const std::string& path) {
  return (fs::path(file).parent_path() / path).lexically_normal().string();
}

// Leaves of nested maps one by one, so that what stands beside them in the base stays.
void apply_overrides(YamlDocument& document, const YAML::Node& node, const std::string& path,
                     const std::string& file) {
  for (const auto& entry : node) {
    const auto name = entry.first.as<std::string>("");
    const auto key = path.empty() ? name : path + "." + name;
    if (entry.second.IsMap() && entry.second.size() > 0)
      apply_overrides(document, entry.second, key, file);
    else
      override_value(document, key, entry.second,
                     fmt::format("{}:{}:", file, entry.first.Mark().line + 1));
  }
}

void move_into(const std::string& folder, std::string& path) {
  if (folder.empty() || fs::path(path).is_absolute()) return;
  const auto there = (fs::path(folder) / path).lexically_normal().string();
  if (path_exists(there)) path = there;
}

class SweepReader {
 public:
  explicit SweepReader(const SweepSource& source)
      : source_(source), document_(load_yaml(source.file)) {}

  SweepConfig read() {
    YamlSection root(document_, document_.root, "");
    SweepConfig config;
    config.name = required_name(root, "name");
    base_ = root.node("base");
    if (!base_.IsNull() && !base_.IsMap() && !base_.IsScalar())
      root.expected("base", "a capture configuration, or the path of one");
    data_folder_ = source_.data_folder;
    if (const auto folder = root.text("data_folder"); folder && data_folder_.empty())
      data_folder_ = beside(source_.file, *folder);
    config.analysis = read_analysis(root.section("analysis"));
    auto runs = root.sections("runs");
    if (runs.empty()) root.expected("runs", "a list of at least one run");
    root.finish();
    for (auto& run : runs) config.runs.push_back(read_run(run, std::ssize(config.runs)));
    std::stable_sort(config.runs.begin(), config.runs.end(),
                     [](const SweepRun& a, const SweepRun& b) { return a.order < b.order; });
    return config;
  }

 private:
  SweepRun read_run(YamlSection& section, std::int64_t index) {
    SweepRun run;
    run.label = required_name(section, "label");
    if (!labels_.insert(run.label).second)
      section.expected("label", "another name: an earlier run has this one");
    run.phase = section.text("phase").value_or("");
    run.family = section.text("family").value_or("");
    run.order = section.integer("order", INT64_MIN).value_or(index);
    const auto own = section.text("config");
    const auto overrides = section.node("overrides");
    if (!overrides.IsNull() && !overrides.IsMap()) section.expected("overrides", "a map");
    section.finish();
    try {
      run.capture = read_capture(own, overrides);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("run {}: {}", run.label, error.what()));
    }
    return run;
  }

  CaptureConfig read_capture(const std::optional<std::string>& own, const YAML::Node& overrides) {
    auto document = base_document(own);
    apply_overrides(document, overrides, "", source_.file);
    override_values(document, source_.overrides);
    for (const auto& [key, origin] : document.overridden)
      if (key == "output.data_root")
        bad_input("{} {}: a sweep chooses the folders of its captures; leave it out", origin, key);
    auto capture = read_capture_config(document);
    move_into(data_folder_, capture.dataset.path);
    move_into(data_folder_, capture.model.name);
    move_into(data_folder_, capture.tokenizer.name);
    return capture;
  }

  // Read anew for each run: overrides change it.
  YamlDocument base_document(const std::optional<std::string>& own) const {
    if (own) return load_yaml(beside(source_.file, *own));
    if (base_.IsScalar()) return load_yaml(beside(source_.file, base_.Scalar()));
    auto document = load_yaml(source_.file);
    document.root.reset(base_.IsMap() ? document.root["base"] : YAML::Node(YAML::NodeType::Map));
    return document;
  }

  const SweepSource& source_;
  YamlDocument document_;
  YAML::Node base_;
  std::string data_folder_;
  std::set<std::string> labels_;
};

}  // namespace

SweepConfig read_sweep(const SweepSource& source) {
  return SweepReader(source).read();
}

}  // namespace qkscope
