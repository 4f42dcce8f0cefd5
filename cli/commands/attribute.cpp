// qkscope attribute: writes attention scores as sums over components of the residual stream.
#include <cmath>
#include <filesystem>

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
#include "qkscope/figures.h"

namespace qkscope::cli {
namespace {

struct AttributeArguments {
  CommonOptions common;
  ModelArguments model;
  TokenInput input;
  DatasetInput dataset;
  std::vector<std::string> also;
  std::string heads;
  std::string query = "-1";
  std::string keys = "top:8";
  bool experts = false;
  bool biases = false;
  std::string features;
  std::int64_t samples = 1000;
  bool uniform = false;
  std::uint64_t seed = 0;
  bool effect = false;
  bool cross = false;
  std::string top = "20";
  std::string out;
  std::string formats = "svg,png,pdf";
  bool no_figures = false;
};

// Returns the number of --top; 0 for "all".
std::int64_t kept_pairs(const AttributeArguments& options) {
  if (options.top == "all") return 0;
  const auto top = parse_integer(options.top, "--top");
  if (top < 1) bad_input("--top: found {}, expected a number of 1 or more, or all", top);
  return top;
}

void write_table(const Table& table, const AttributeArguments& options, const std::string& name) {
  const auto path = options.out + "/" + name;
  table.write_csv(path + ".csv");
  table.write_parquet(path + ".parquet");
  info("{}.parquet, {}.csv: {} rows", path, path, table.rows());
}

void draw(const AttributeArguments& options) {
  if (options.no_figures) return;
  DrawOptions draw;
  draw.results = options.out;
  draw.out = options.out + "/figures";
  draw.formats = split(options.formats, ',');
  draw.report = false;
  draw.quiet = options.common.quiet;
  info("{} figures in {}", draw_figures(draw).figures.size(), draw.out);
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
  AttributionOptions wanted;
  wanted.heads = parse_heads(options.heads, model.config());
  wanted.queries = read_positions(options.query, std::ssize(ids), "--query");
  wanted.keys = options.keys;
  wanted.experts = options.experts;
  wanted.biases = options.biases;
  wanted.effect = options.effect;
  wanted.features = options.features;
  if (!options.input.text_file.empty())
    wanted.text_name = std::filesystem::path(options.input.text_file).filename().string();
  const auto top = kept_pairs(options);
  const auto found = attribute_scores(model, ids, wanted);
  print_scores(found, top);
  if (options.out.empty()) return;
  std::filesystem::create_directories(options.out);
  write_table(found.table(top), options, "attribution");
  write_table(found.component_table(), options, "attribution_components");
  write_table(found.rotary_table(options.cross, top), options, "pairs");
  write_table(found.distance_table(options.cross, top), options, "distance_curve");
  if (options.effect) write_table(found.effect_table(), options, "effect");
  draw(options);
}

// Prints the components that explain most of the variance of the scores of every head.
void print_composition(const Table& components) {
  const auto& explained = components.find("explained")->reals;
  for (std::size_t begin = 0; begin < explained.size();) {
    const auto same = [&](std::size_t row) {
      return components.find("layer")->integers[row] == components.find("layer")->integers[begin] &&
             components.find("head")->integers[row] == components.find("head")->integers[begin] &&
             components.find("side")->texts[row] == components.find("side")->texts[begin];
    };
    std::vector<std::size_t> rows;
    while (begin + rows.size() < explained.size() && same(begin + rows.size()))
      rows.push_back(begin + rows.size());
    std::stable_sort(rows.begin(), rows.end(), [&](std::size_t a, std::size_t b) {
      return std::fabs(explained[a]) > std::fabs(explained[b]);
    });
    fmt::print("{}.{} {}:", components.find("layer")->integers[begin],
               components.find("head")->integers[begin], components.find("side")->texts[begin]);
    for (std::size_t i = 0; i < std::min<std::size_t>(5, rows.size()); ++i)
      fmt::print("  {} {:.3f}", components.find("component")->texts[rows[i]], explained[rows[i]]);
    fmt::print("\n");
    begin += rows.size();
  }
}

// Appends the rows of a checkpoint to a table, with its place in the series as column `order`.
Table append_rows(const Table& table, const Table& more, std::int64_t order) {
  auto columns = table.columns();
  if (columns.empty())
    for (const auto& column : more.columns())
      columns.push_back({column.name, column.type, {}, {}, {}});
  if (columns.size() == more.columns().size())
    columns.insert(columns.begin() + 1, {"order", Table::Type::integer, {}, {}, {}});
  std::size_t from = 0;
  for (auto& column : columns) {
    if (column.name == "order") {
      column.integers.insert(column.integers.end(), static_cast<std::size_t>(more.rows()), order);
      continue;
    }
    const auto& added = more.columns()[from++];
    column.integers.insert(column.integers.end(), added.integers.begin(), added.integers.end());
    column.reals.insert(column.reals.end(), added.reals.begin(), added.reals.end());
    column.texts.insert(column.texts.end(), added.texts.begin(), added.texts.end());
  }
  return Table(std::move(columns));
}

Composition compose(const Model& model, const AttributeArguments& options) {
  const auto texts = options.dataset.read(model.folder(), options.input.no_special);
  CompositionOptions wanted;
  wanted.heads = parse_heads(options.heads, model.config());
  wanted.samples = options.samples;
  wanted.uniform = options.uniform;
  wanted.seed = options.seed;
  wanted.biases = options.biases;
  wanted.top = kept_pairs(options);
  Progress progress({.what = "composition",
                     .unit = "texts",
                     .total = std::ssize(texts),
                     .quiet = options.common.quiet});
  wanted.on_text = [&](std::int64_t done) { progress.update(done); };
  auto found = composition(model, texts, wanted);
  progress.finish();
  return found;
}

void compose_all(const AttributeArguments& options) {
  if (!options.features.empty() || options.experts || options.effect)
    bad_input("--features, --experts and --effect are of one text; leave them out with --dataset");
  Composition all;
  std::int64_t order = 0;
  auto checkpoint = options.model;
  do {
    const auto folder = checkpoint.fetch(options.common.quiet);
    const auto found = compose(checkpoint.load(folder, options.dataset.max_tokens), options);
    if (!options.also.empty()) fmt::print("{}\n", checkpoint.name);
    print_composition(found.components);
    all.pairs = append_rows(all.pairs, found.pairs, order);
    all.components = append_rows(all.components, found.components, order);
    if (order < std::ssize(options.also))
      checkpoint.name = options.also[static_cast<std::size_t>(order)];
  } while (order++ < std::ssize(options.also));
  if (options.out.empty()) return;
  std::filesystem::create_directories(options.out);
  write_table(all.pairs, options, "composition");
  write_table(all.components, options, "composition_components");
  draw(options);
}

void run(AttributeArguments& options) {
  if (!options.out.empty()) check_local_output(options.out);
  kept_pairs(options);  // refuses a wrong value before the model is loaded
  if (options.dataset.given()) return compose_all(options);
  if (!options.also.empty()) bad_input("--also is of a series of checkpoints over a --dataset");
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
      .add_option("--keys", options.keys,
                  "Keys of every query: top:N by attention, all, or positions")
      ->type_name("top:N|all|POSITIONS")
      ->capture_default_str();
  command
      .add_option("--sample", options.samples,
                  "With --dataset: pairs of query and key per head, over all texts")
      ->check(positive())
      ->capture_default_str();
  command
      .add_option("--also", options.also,
                  "With --dataset: the next checkpoint of a series, in the same tables; repeatable")
      ->allow_extra_args(false)
      ->type_name("MODEL");
  command.add_flag("--uniform", options.uniform,
                   "With --dataset: draw keys uniformly instead of by attention");
  command.add_option("--seed", options.seed, "Seed of the drawn pairs")->capture_default_str();
  start_section(command, "Components");
  command.add_flag("--experts", options.experts, "Split mixtures of experts by expert");
  command.add_flag("--biases", options.biases, "Count output biases of MLPs as the component bias");
  command
      .add_option("--features", options.features,
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
  command->add_flag("--effect", options->effect,
                    "Also write effect.parquet: attention and output without each component; not "
                    "additive");
  command->add_option("--out", options->out,
                      "Folder for the tables and figures/ (default: print only)");
  command->add_option("--format", options->formats, "Formats of the figures: some of svg,png,pdf")
      ->capture_default_str();
  command->add_flag("--no-figures", options->no_figures, "Tables only");
}

}  // namespace qkscope::cli
