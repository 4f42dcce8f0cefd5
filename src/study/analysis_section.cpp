#include "study/analysis_section.h"

#include <limits>

#include <fmt/format.h>

namespace qkscope {
namespace {

// 0 to 1
void read_share(YamlSection& section, const std::string& key, double& value) {
  const auto found = section.positive_number(key);
  if (found && *found > 1.0) section.expected(key, "a number above 0, at most 1");
  value = found.value_or(value);
}

// True for the second of two words.
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

}  // namespace

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
  plasticity.seed = options.seed;
  section.finish();
  return options;
}

}  // namespace qkscope
