// qkscope attribute: decomposes attention scores over components of the residual stream.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/logging.h"
#include "cli/model_options.h"
#include "cli/output_folder.h"
#include "cli/token_input.h"
#include "qkscope/experimental/attribution.h"
#include "qkscope/experimental/log.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

struct AttributeArguments {
  CommonOptions common;
  ModelArguments model;
  TokenInput input;
  DatasetInput dataset;
  AttributionOptions scores;
  CompositionOptions means;
  std::vector<std::string> also;
  std::string heads;
  std::string query = "-1";
  bool cross = false;
  std::string top = "20";
  TableOutput output;
};

// Parses --top, a number of component pairs. Returns 0 for "all".
std::int64_t parse_top(const AttributeArguments& options) {
  if (options.top == "all") return 0;
  const auto top = parse_integer(options.top, "--top");
  if (top < 1) reject("--top: found {}, expected a number of 1 or more, or all", top);
  return top;
}

// Prints the largest contributions of every score.
void print_scores(const ScoreAttribution& found, std::int64_t top) {
  const auto table = found.table(std::min<std::int64_t>(top == 0 ? 5 : top, 5));
  const auto text = [&](const char* name, std::size_t row) {
    return printable(table.find(name)->texts[row]);
  };
  const auto per_pair = static_cast<std::size_t>(table.rows()) / found.pairs().size();
  for (std::size_t pair = 0; pair < found.pairs().size(); ++pair) {
    const auto& p = found.pairs()[pair];
    const auto first = pair * per_pair;
    fmt::print(
        "{}.{}  query {} '{}'  key {} '{}'  score {:.4f}  attention {:.4f}  residual {:.1e}\n",
        p.head.layer, p.head.head, p.query, text("query_token", first), p.key,
        text("key_token", first), p.score, p.attention, p.residual);
    for (auto row = first; row < first + per_pair; ++row)
      fmt::print("  {:>9.4f}  {} · {}\n", table.find("value")->reals[row], text("q_component", row),
                 text("k_component", row));
  }
}

void attribute_text(const Model& model, const std::vector<std::int32_t>& ids,
                    const AttributeArguments& options) {
  auto wanted = options.scores;
  wanted.heads = parse_heads(options.heads, model.config());
  wanted.queries = read_positions(options.query, std::ssize(ids), "--query");
  if (!options.input.text_file.empty())
    wanted.text_name = std::filesystem::path(options.input.text_file).filename().string();
  const auto top = parse_top(options);
  const auto found = attribute_scores(model, ids, wanted);
  print_scores(found, top);
  if (!options.output.is_given()) return;
  options.output.write(found.table(top), "attribution");
  options.output.write(found.component_table(), "attribution_components");
  options.output.write(found.rotary_table(options.cross, top), "pairs");
  options.output.write(found.distance_table(options.cross, top), "distance_curve");
  if (wanted.effect) options.output.write(found.effect_table(), "effect");
  options.output.draw(options.common.quiet);
}

// Prints, for every head, the components that explain most of the variance of its scores.
void print_composition(const Table& components) {
  const auto& explained = components.find("explained")->reals;
  std::map<std::string, std::vector<std::size_t>> sides;  // rows by head and side
  std::vector<std::string> names;                         // in order of appearance
  for (std::size_t row = 0; row < explained.size(); ++row) {
    const auto name =
        fmt::format("{}.{} {}", components.find("layer")->integers[row],
                    components.find("head")->integers[row], components.find("side")->texts[row]);
    if (!sides.contains(name)) names.push_back(name);
    sides[name].push_back(row);
  }
  for (const auto& name : names) {
    auto& rows = sides[name];
    std::ranges::stable_sort(rows, std::greater(),
                             [&](std::size_t row) { return std::fabs(explained[row]); });
    fmt::print("{}:", name);
    for (std::size_t i = 0; i < std::min<std::size_t>(5, rows.size()); ++i)
      fmt::print("  {} {:.3f}", components.find("component")->texts[rows[i]], explained[rows[i]]);
    fmt::print("\n");
  }
}

// Appends a checkpoint's table to `all`, with the checkpoint's index in the series as column
// `order`.
void append_rows(std::vector<Table::Column>& all, const Table& more, std::int64_t order) {
  auto columns = more.columns();
  const std::vector<std::int64_t> orders(static_cast<std::size_t>(more.rows()), order);
  columns.insert(columns.begin() + 1, {"order", Table::Type::integer, orders, {}, {}});
  if (all.empty()) all.resize(columns.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto append = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    all[i].name = columns[i].name;
    all[i].type = columns[i].type;
    append(all[i].integers, columns[i].integers);
    append(all[i].reals, columns[i].reals);
    append(all[i].texts, columns[i].texts);
  }
}

Composition run_composition(const Model& model, const AttributeArguments& options) {
  const auto texts = options.dataset.read(model.folder(), options.input.no_special);
  auto wanted = options.means;
  wanted.heads = parse_heads(options.heads, model.config());
  wanted.biases = options.scores.biases;
  wanted.top = parse_top(options);
  Progress progress({.what = "composition",
                     .unit = "texts",
                     .total = std::ssize(texts),
                     .quiet = options.common.quiet});
  wanted.on_text = [&](std::int64_t done) { progress.update(done); };
  auto found = composition(model, texts, wanted);
  progress.finish();
  return found;
}

void compose_checkpoints(const AttributeArguments& options) {
  if (!options.scores.features.empty() || options.scores.experts || options.scores.effect)
    reject("--features, --experts and --effect are of one text; leave them out with --dataset");
  std::vector<Table::Column> pairs;
  std::vector<Table::Column> components;
  auto checkpoint = options.model;
  auto names = options.also;
  names.insert(names.begin(), checkpoint.name);
  for (std::size_t order = 0; order < names.size(); ++order) {
    checkpoint.name = names[order];
    const auto folder = checkpoint.fetch(options.common.quiet);
    const auto found =
        run_composition(checkpoint.load(folder, options.dataset.max_tokens), options);
    if (names.size() > 1) fmt::print("{}\n", checkpoint.name);
    print_composition(found.components);
    append_rows(pairs, found.pairs, static_cast<std::int64_t>(order));
    append_rows(components, found.components, static_cast<std::int64_t>(order));
  }
  if (!options.output.is_given()) return;
  options.output.write(Table(std::move(pairs)), "composition");
  options.output.write(Table(std::move(components)), "composition_components");
  options.output.draw(options.common.quiet);
}

void run(AttributeArguments& options) {
  options.output.check();
  parse_top(options);  // throws for a bad --top before the model is loaded
  if (options.dataset.is_given()) return compose_checkpoints(options);
  if (!options.also.empty()) reject("--also is of a series of checkpoints over a --dataset");
  const auto folder = options.model.fetch(options.common.quiet);
  const auto ids = options.input.read(folder);
  attribute_text(options.model.load(folder, std::ssize(ids)), ids, options);
}

void add_components(CLI::App& command, AttributeArguments& options) {
  start_section(command, "Scores");
  command.add_option("--head", options.heads, "Heads: 18.6, a list 18.6,19.0, or 18.* for a layer")
      ->required()
      ->type_name("LAYER.HEAD");
  command
      .add_option("--query", options.query,
                  "Query positions: 5, 0,3,7 or 0:8; negative positions count from the end")
      ->type_name("POSITIONS")
      ->capture_default_str();
  command
      .add_option("--keys", options.scores.keys,
                  "Keys of every query: top:N by attention, all, or positions")
      ->type_name("top:N|all|POSITIONS")
      ->capture_default_str();
  command
      .add_option("--sample", options.means.samples,
                  "With --dataset: pairs of query and key per head, over all texts")
      ->check(positive())
      ->capture_default_str();
  command
      .add_option("--also", options.also,
                  "With --dataset: the next checkpoint of a series, in the same tables; repeatable")
      ->allow_extra_args(false)
      ->type_name("MODEL");
  command.add_flag("--uniform", options.means.uniform,
                   "With --dataset: draw keys uniformly instead of by attention");
  command.add_option("--seed", options.means.seed, "Seed of the drawn pairs")
      ->capture_default_str();
  start_section(command, "Components");
  command.add_flag("--experts", options.scores.experts, "Split mixtures of experts by expert");
  command.add_flag("--biases", options.scores.biases,
                   "Count output biases of MLPs as the component bias");
  command
      .add_option("--features", options.scores.features,
                  "Safetensors file with COMPONENT.decoder and COMPONENT.activations, which split "
                  "components into features")
      ->check(existing_file())
      ->type_name("FILE");
}

}  // namespace

void add_attribute(CLI::App& app) {
  auto [command, options] = add_command<AttributeArguments>(
      app, "attribute",
      "Explain attention scores: exact contributions of earlier heads, MLPs and embeddings", run);
  options->model.add_to(*command);
  auto& input = options->input.add_to(*command);
  options->dataset.add_to(*command, input);
  input.description("Input, one of these; --dataset writes means over sampled pairs");
  add_components(*command, *options);
  start_section(*command, "Output");
  command
      ->add_option("--top", options->top,
                   "Component pairs to keep per score, or per head with --dataset; or all")
      ->type_name("N|all")
      ->capture_default_str();
  command->add_flag("--cross", options->cross,
                    "Split the rotary pairs and the distance curve by the --top component pairs");
  command->add_flag("--effect", options->scores.effect,
                    "Also write effect.parquet: attention and output without each component; not "
                    "additive");
  options->output.add_to(*command, "Folder for the tables and figures/");
}

}  // namespace qkscope::cli
