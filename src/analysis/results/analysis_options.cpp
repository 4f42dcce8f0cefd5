#include <algorithm>
#include <concepts>
#include <limits>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/core/lazy_init.h"
#include "qkscope/experimental/options.h"

namespace qkscope {
namespace {

using Integers = std::vector<std::int64_t>;

constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 62;

template <typename Field>
constexpr bool kIsChoice = std::is_same_v<Field, bool> || std::is_enum_v<Field>;

// Converts a field of AnalyzeOptions to an option value. The words of a choice are in the order of
// its enum. profile_bins is the only integer option that accepts a word (`buckets`).
template <typename Field>
OptionValue option_value_of_field(const Field& field, OptionKind kind,
                                  const std::vector<std::string_view>& words) {
  if constexpr (std::is_same_v<Field, std::optional<HeadCounts>>)
    return field ? Integers{field->query_heads, field->key_heads} : Integers{};
  else if constexpr (std::is_same_v<Field, std::vector<int>>)
    return Integers(field.begin(), field.end());
  else if constexpr (kIsChoice<Field>)
    return kind == OptionKind::flag
               ? OptionValue(static_cast<bool>(field))
               : OptionValue(std::string(words[static_cast<std::size_t>(field)]));
  else if constexpr (std::is_same_v<Field, int>)
    return !words.empty() && field == PlasticityOptions::kBuckets
               ? OptionValue(std::string(words[0]))
               : OptionValue(static_cast<std::uint64_t>(field));
  else if constexpr (std::integral<Field>)
    return static_cast<std::uint64_t>(field);
  else
    return field;
}

// Inverse of option_value_of_field().
template <typename Field>
void store_option_value(const OptionValue& value, const std::vector<std::string_view>& words,
                        Field& field) {
  const auto* word = std::get_if<std::string>(&value);
  if constexpr (std::is_same_v<Field, std::optional<HeadCounts>>) {
    const auto& counts = std::get<Integers>(value);
    field.reset();
    if (counts.size() == 2)
      field = HeadCounts{static_cast<int>(counts[0]), static_cast<int>(counts[1])};
  } else if constexpr (std::is_same_v<Field, std::vector<int>>) {
    field.clear();
    for (const auto number : std::get<Integers>(value)) field.push_back(static_cast<int>(number));
  } else if constexpr (kIsChoice<Field>) {
    field = word == nullptr ? static_cast<Field>(std::get<bool>(value))
                            : static_cast<Field>(std::ranges::find(words, *word) - words.begin());
  } else if constexpr (std::integral<Field>) {
    field = word == nullptr ? static_cast<Field>(std::get<std::uint64_t>(value))
                            : static_cast<Field>(PlasticityOptions::kBuckets);
  } else {
    field = std::get<Field>(value);
  }
}

// Sets the default value of an option and the functions that access its field.
template <typename Access>
AnalysisOption row(AnalysisOption option, Access access) {
  option.load = [access, kind = option.kind, words = option.words](const AnalyzeOptions& options) {
    return option_value_of_field(access(options), kind, words);
  };
  option.fallback = option.load(AnalyzeOptions());
  option.store = [access, words = option.words](AnalyzeOptions& options, const OptionValue& value) {
    store_option_value(value, words, access(options));
  };
  return option;
}

// A member path cannot be enclosed in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define FIELD(path)            \
  [](auto& options) -> auto& { \
    return options.path;       \
  }
// NOLINTEND(bugprone-macro-parentheses)

// Separate namespace: the short names would clash with other files of the unity build.
namespace option_table {
using enum OptionKind;
using Group = OptionGroup;

// clang-format off
std::vector<AnalysisOption> make_rows() {
 return {
  // Options that supply metadata missing from the capture.
  row({"label", Group::capture, text, "Name in the model column (default: the capture's own)"}, FIELD(label)),
  row({"model", Group::capture, text, "Model of a capture that does not state its head counts and RoPE: folder, "
       "id or ID@REVISION; only its config.json is read"}, FIELD(model)),
  row({.name = "head_counts", .group = Group::capture, .kind = counts, .help = "Query heads and key heads per "
       "layer, as 32,8, for captures that do not state them", .least = 1, .length = 2}, FIELD(head_counts)),
  row({"nope_layers", Group::capture, layers, "Layers without RoPE, for captures that do not state them"},
      FIELD(nope_layers)),

  row({"partial", Group::rows, flag, "Analyse the heads that are there if the capture is not whole; the model column "
       "of every table then ends with (partial)"}, FIELD(partial)),
  row({"layers", Group::rows, layers, "Only these layers: 0,4-7 (default: all)"}, FIELD(layers)),
  row({"heads", Group::rows, heads, "Only these query heads, LAYER.HEAD: 3.5,3.6 (default: all)"}, FIELD(heads)),
  row({.name = "attention", .group = Group::rows, .kind = choice, .help = "Only layers with full attention, or with "
       "a sliding window", .words = {"any", "full", "sliding"}}, FIELD(attention)),
  row({.name = "max_tokens", .group = Group::rows, .kind = count, .help = "Use a seeded sample of at most this "
       "many rows per file (0: all rows)", .most = kUnlimited}, FIELD(max_tokens)),
  row({.name = "seed", .group = Group::rows, .kind = count, .help = "Seed of every random sample",
       .most = std::numeric_limits<std::uint64_t>::max()}, FIELD(seed)),
  row({"errors", Group::rows, flag, "Errors of the means over heads, by a jackknife over texts"}, FIELD(errors)),
  row({"scatter", Group::rows, count, "Rows per head and side kept for figures in head_scatter.parquet (0: none)"},
      FIELD(scatter)),

  row({.name = "components", .group = Group::pca, .kind = count, .help = "Principal components per head",
       .least = 1}, FIELD(pca_options.components)),
  row({"separate_pca", Group::pca, count, "Principal components of queries alone and of keys alone in "
       "correlations.csv (0: none)"}, FIELD(pca_options.separate_components)),
  row({"high", Group::pca, number, "Taxonomy: a correlation above this is high"}, FIELD(taxonomy.high)),
  row({"low", Group::pca, number, "Taxonomy: a correlation below this is low"}, FIELD(taxonomy.low)),

  row({.name = "separation", .group = Group::rotation, .kind = choice, .help = "Direction b: the difference of "
       "means, or the first eigenvector of query-key differences with a projected out before (eigen) or after",
       .words = {"mean", "eigen", "eigen-then-project"}}, FIELD(rotation_options.separation)),
  row({"null_draws", Group::rotation, count, "Random permutations of the positions for the null distribution of "
       "correlations along a (0: none)"}, FIELD(rotation_options.null_draws)),
  row({.name = "pairs", .group = Group::rotation, .kind = count, .help = "Planes of the complement", .least = 1},
      FIELD(rotation_options.pairs)),
  row({"active", Group::rotation, number, "A plane rotates with position if its angle_r is above this"},
      FIELD(rotation_options.active_angle_r)),
  row({.name = "max_omega", .group = Group::rotation, .kind = number, .help = "Highest frequency searched where "
       "RoPE frequencies are unknown (rad/token)", .lower = 1e-6, .upper = 3.14159},
      FIELD(rotation_options.max_omega)),
  row({"planes_of", Group::rotation, heads, "Keep the rows of these heads, LAYER.HEAD,..., on every plane of the "
       "complement, for the figure head_planes"}, FIELD(planes_of)),

  row({.name = "query_model", .group = Group::plasticity, .kind = choice, .help = "Model of the queries in a bin "
       "of the profile: local regression on position, the queries of the bin, the queries of the bucket, or one "
       "line", .words = {"local", "bin", "bucket", "linear"}}, FIELD(plasticity_options.profile_model)),
  row({.name = "covariance", .group = Group::plasticity, .kind = choice, .help = "Residual covariance of the "
       "queries: its diagonal, or the full matrix with Ledoit-Wolf shrinkage", .words = {"diagonal", "full"}},
      FIELD(plasticity_options.covariance)),
  row({.name = "free_keys", .group = Group::plasticity, .kind = count, .help = "Keys per bin up to which the "
       "model-free plasticity is exact", .least = 1, .most = kUnlimited}, FIELD(plasticity_options.free_keys)),
  row({.name = "max_pairs", .group = Group::plasticity, .kind = count, .help = "Key pairs per cell up to which "
       "averages are exact; above it a sample of this size", .least = 1, .most = kUnlimited},
      FIELD(plasticity_options.max_pairs)),
  row({"p_alpha", Group::plasticity, number, "Significance level of the normality tests"},
      FIELD(plasticity_options.p_alpha)),
  row({.name = "profile_bins", .group = Group::plasticity, .kind = count, .help = "Bins of the profile over the "
       "context: a number, or 'buckets' for the buckets of the capture (default: about 50 queries of a head in "
       "each)", .least = 1, .most = PlasticityOptions::kMostBins, .words = {"buckets"}},
      FIELD(plasticity_options.profile_bins)),
  row({.name = "fifths", .group = Group::plasticity, .kind = choice, .help = "Fifths and tenths of the range of "
       "positions that have values, or of the whole context", .words = {"range", "context"}},
      FIELD(plasticity_options.fifths)),
  row({.name = "length_bins", .group = Group::plasticity, .kind = counts, .help = "Edges of the length bins in "
       "tokens (default: 0,1024,2048,4096 and so on)", .most = kUnlimited}, FIELD(plasticity_options.length_bins)),
  row({.name = "heatmap_bins", .group = Group::plasticity, .kind = count, .help = "Bins per axis of the heatmap",
       .least = 1, .most = 1000}, FIELD(plasticity_options.heatmap_bins)),

  row({.name = "score_pairs", .group = Group::geometry, .kind = count, .help = "Captures only: query-key pairs per "
       "head for distance_share, key_share and query_share; all pairs if there are fewer", .least = 2,
       .most = kUnlimited}, FIELD(geometry_options.score_pairs)),
  row({.name = "swap_queries", .group = Group::geometry, .kind = count, .help = "Captures only: queries per head whose "
       "keys are swapped for symbolic_score and positional_score", .least = 1}, FIELD(geometry_options.swap_queries)),
  row({"weights", Group::geometry, text, "Model whose weights give weight_rank_90: folder, id or ID@REVISION; in a "
       "sweep file `run` for the model of each run (default: the column stays empty)"}, FIELD(weights)),

  row({.name = "stage", .group = Group::statistics, .kind = choice, .help = "Statistics only: vectors before RoPE "
       "(pre), or as they enter the dot product (post)", .words = {"post", "pre"}}, FIELD(pre_rope)),
  row({"keys", Group::statistics, text, "Statistics only: a capture of the same run, whose keys the plasticity "
       "compares"}, FIELD(keys)),
 };
}
// clang-format on
}  // namespace option_table
#undef FIELD

}  // namespace

std::string AnalysisOption::command_line_name() const {
  std::string dashes(name);
  std::ranges::replace(dashes, '_', '-');
  const bool is_on = kind == OptionKind::flag && std::get<bool>(fallback);
  return (is_on ? "--no-" : "--") + dashes;
}

std::string AnalysisOption::default_text() const {
  if (const auto* word = std::get_if<std::string>(&fallback)) return *word;
  if (const auto* on = std::get_if<bool>(&fallback)) return *on ? "true" : "false";
  if (const auto* real = std::get_if<double>(&fallback)) return fmt::format("{:g}", *real);
  const auto* whole = std::get_if<std::uint64_t>(&fallback);
  return whole != nullptr && *whole >= least ? fmt::format("{}", *whole) : "";
}

std::string AnalysisOption::expected() const {
  using enum OptionKind;
  switch (kind) {
    case flag:
      return "true or false";
    case count:
      return most >= kUnlimited
                 ? fmt::format("a whole number from {} on", least)
                 : fmt::format("a whole number from {} to {}{}", least, most,
                               words.empty() ? "" : fmt::format(", or {}", words[0]));
    case number:
      return fmt::format("a number from {:g} to {:g}", lower, upper);
    case choice:
      return fmt::format("{} or {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
    case text:
      return "a text";
    case counts:
      return length == 0 ? "a list of whole numbers"
                         : "two numbers, of query and of key heads per layer";
    case layers:
      return "numbers of layers, from 0 on";
    case heads:
      return "pairs [layer, head], as [[3, 5], [3, 6]]";
  }
  return "";
}

bool AnalysisOption::allows(const OptionValue& value) const {
  using enum OptionKind;
  if (const auto* word = std::get_if<std::string>(&value))
    return kind == text || std::ranges::count(words, *word) > 0;
  if (const auto* whole = std::get_if<std::uint64_t>(&value))
    return kind == count && *whole >= least && *whole <= most;
  if (const auto* real = std::get_if<double>(&value))
    return kind == number && *real >= lower && *real <= upper;
  if (const auto* list = std::get_if<Integers>(&value))
    return (kind == counts || kind == layers) &&
           (length == 0 || list->empty() || list->size() == length) &&
           std::ranges::all_of(*list, [&](std::int64_t item) {
             return item >= 0 && static_cast<std::uint64_t>(item) >= least &&
                    static_cast<std::uint64_t>(item) <= most;
           });
  return kind == (std::holds_alternative<bool>(value) ? flag : heads);
}

const std::vector<AnalysisOption>& analysis_options() {
  return lazy_init_lock_free([] { return option_table::make_rows(); });
}

std::string_view title(OptionGroup group) {
  constexpr std::string_view kTitles[] = {"Capture",    "Rows",     "PCA",       "Rotation",
                                          "Plasticity", "Geometry", "Statistics"};
  return kTitles[static_cast<std::size_t>(group)];
}

std::string analysis_options_markdown() {
  std::string page =
      "# Options of analyses\n\n"
      "`qkscope analyze --max-omega 0.5`, `analysis: {max_omega: 0.5}` in a sweep file, and "
      "`qkscope.analyze(..., max_omega=0.5)` are the same option. Sweep files state the options of "
      "Capture for each run and take none of Statistics.\n\n"
      "`qkscope options` prints this page; do not edit it by hand.\n";
  const AnalysisOption* before = nullptr;
  for (const auto& option : analysis_options()) {
    if (before == nullptr || before->group != option.group)
      page += fmt::format(
          "\n## {}\n\n| command line | sweep file, Python | value | default | meaning |\n"
          "| --- | --- | --- | --- | --- |\n",
          title(option.group));
    before = &option;
    page += fmt::format("| `{}` | `{}` | {} | {} | {} |\n", option.command_line_name(), option.name,
                        option.expected(), option.default_text(), option.help);
  }
  return page;
}

}  // namespace qkscope
