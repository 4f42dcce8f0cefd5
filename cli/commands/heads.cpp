// qkscope heads: finds previous-token, duplicate-token and induction heads, or heads that match a
// given attention pattern.
#include "qkscope/experimental/heads.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <sstream>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/logging.h"
#include "cli/model_options.h"
#include "cli/numbers.h"
#include "cli/output_folder.h"
#include "cli/token_input.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

using HeadTexts = std::vector<std::vector<std::int32_t>>;

constexpr const char* kPatterns[] = {"previous_token_head", "duplicate_token_head",
                                     "induction_head"};

struct HeadsArguments {
  CommonOptions common;
  ModelArguments model;
  TokenInput input;
  DatasetInput dataset;
  std::int64_t random_tokens = 64;
  std::uint64_t seed = 0;
  std::string pattern;
  std::string measure = "mul";
  bool no_bos = false;
  bool exclude_bos = false;
  bool exclude_current_token = false;
  bool near_only = false;
  std::int64_t top = 10;
  bool csv = false;
  TableOutput output;
};

HeadTexts read_texts(const Model& model, const HeadsArguments& options) {
  if (options.input.is_given()) return {options.input.read(model.folder())};
  if (options.dataset.is_given())
    return options.dataset.read(model.folder(), options.input.no_special);
  return repeated_texts(
      model, {.tokens = options.random_tokens, .seed = options.seed, .bos = !options.no_bos});
}

std::string describe_texts(const HeadsArguments& options, const HeadTexts& texts) {
  if (options.input.is_given()) return "one text";
  if (!options.dataset.is_given())
    return fmt::format("{} texts of {} random tokens written twice", texts.size(),
                       options.random_tokens);
  return fmt::format("{} texts of {}", format_number(std::ssize(texts)), options.dataset.dataset);
}

// Returns the full name of a built-in pattern; "" for any other value of --pattern.
std::string builtin_pattern_name(const std::string& option) {
  for (const std::string_view name : kPatterns)
    if (option == name || option + "_token_head" == name || option + "_head" == name)
      return std::string(name);
  return "";
}

// Reads an attention pattern from a file: rows of numbers separated by commas or spaces.
std::vector<float> read_pattern(const std::string& path) {
  if (!std::filesystem::is_regular_file(path))
    reject(
        "--pattern: '{}' is neither previous, duplicate or induction nor a file with a row of "
        "numbers for every token",
        path);
  std::vector<float> values;
  std::int64_t line_number = 0;
  for (auto& line : split(read_text_file(path), '\n')) {
    ++line_number;
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      char* end = nullptr;
      values.push_back(std::strtof(word.c_str(), &end));
      if (*end != '\0' || !std::isfinite(values.back()))
        reject("{}:{}: found '{}', expected a number", path, line_number, word);
    }
  }
  if (values.empty()) reject("{}: there are no numbers; expected a row for every token", path);
  return values;
}

// Adds a column `pattern` to the table of heads: the score of each head for the attention pattern
// in the file given by --pattern.
Table add_pattern_scores(const Table& table, const Model& model, const HeadTexts& texts,
                         const std::vector<float>& pattern, const HeadScoreOptions& options) {
  if (texts.size() != 1)
    reject("--pattern FILE is of one text; give it by --text, --text-file or --token-ids");
  const auto scores = score_pattern(model, texts.front(), pattern, options);
  Table::Column own{"pattern", Table::Type::real, {}, {}, {}};
  for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows()); ++row)
    own.reals.push_back(scores[static_cast<std::size_t>(table.find("layer")->integers[row] *
                                                            model.config().n_heads +
                                                        table.find("head")->integers[row])]);
  auto columns = table.columns();
  const auto after = std::find_if(columns.begin(), columns.end(), [](const Table::Column& column) {
    return column.name == kPatterns[2];
  });
  columns.insert(after + 1, std::move(own));
  return Table(std::move(columns));
}

void print_best(const Table& table, const std::string& score, std::int64_t top) {
  const auto& scores = table.find(score)->reals;
  std::vector<std::size_t> order;
  for (std::size_t row = 0; row < scores.size(); ++row)
    if (!std::isnan(scores[row])) order.push_back(row);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  order.resize(std::min(order.size(), static_cast<std::size_t>(top)));
  const auto value = [&](const char* name, std::size_t row) {
    const auto* column = table.find(name);
    return column ? fmt::format("{:.3f}", column->reals[row]) : "-";
  };
  fmt::print("\n{:<24}{:>8}{:>8}{:>9}{:>10}\n", score, "score", "sink", "entropy", "distance");
  for (const auto row : order)
    fmt::print(
        "  {:<22}{:>8}{:>8}{:>9}{:>10}\n",
        fmt::format("{}.{}", table.find("layer")->integers[row], table.find("head")->integers[row]),
        fmt::format("{:.3f}", scores[row]), value("sink_0", row), value("entropy", row),
        value("distance_mean", row));
}

void print_heads(const Table& table, const HeadsArguments& options, const Model& model,
                 const HeadTexts& texts) {
  fmt::print("{}: {} heads, {}, {} tokens\n", options.model.name, table.rows(),
             describe_texts(options, texts), format_number(table.find("tokens")->integers.front()));
  if (!options.input.is_given() && !options.dataset.is_given())
    fmt::print("loss on the second copy: {:.3f} nats (ln vocabulary: {:.3f})\n",
               second_copy_loss(model, texts, options.random_tokens),
               std::log(static_cast<double>(model.config().vocab_size)));
  const auto chosen = builtin_pattern_name(options.pattern);
  for (const std::string name : kPatterns)
    if (options.pattern.empty() || chosen == name) print_best(table, name, options.top);
  if (!options.pattern.empty() && chosen.empty()) print_best(table, "pattern", options.top);
}

void run(HeadsArguments& options) {
  options.output.check();
  HeadScoreOptions scores;
  scores.measure =
      options.measure == "abs" ? HeadScoreOptions::Measure::abs : HeadScoreOptions::Measure::mul;
  scores.exclude_bos = options.exclude_bos;
  scores.exclude_current_token = options.exclude_current_token;
  scores.all_keys = !options.near_only;
  std::vector<float> pattern;
  if (!options.pattern.empty() && builtin_pattern_name(options.pattern).empty())
    pattern = read_pattern(options.pattern);
  const auto model = options.model.load(options.model.fetch(options.common.quiet), 0);
  const auto texts = read_texts(model, options);
  auto table = score_heads(model, texts, scores);
  if (!pattern.empty()) table = add_pattern_scores(table, model, texts, pattern, scores);
  if (options.csv)
    fmt::print("{}", table.to_csv());
  else
    print_heads(table, options, model, texts);
  if (!options.output.is_given()) return;
  options.output.write(table, "attention");
  options.output.draw(options.common.quiet);
}

void add_input(CLI::App& command, HeadsArguments& options) {
  auto& input = options.input.add_to(command);
  options.dataset.add_to(command, input);
  input.require_option(0, 1);
  input.description("Input, one of these (default: random tokens, written twice)");
  command
      .add_option("--random-tokens", options.random_tokens,
                  "Number of random tokens that are written twice, in 8 texts")
      ->check(integer_between(2, 65536))
      ->capture_default_str();
  command.add_option("--seed", options.seed, "Seed of the random tokens")->capture_default_str();
  command.add_flag("--no-bos", options.no_bos,
                   "Random tokens without the BOS token that the tokenizer puts before texts");
}

}  // namespace

void add_heads(CLI::App& app) {
  auto [command, options] = add_command<HeadsArguments>(
      app, "heads", "Find induction, previous-token and duplicate-token heads, or your own pattern",
      run);
  options->model.add_to(*command);
  add_input(*command, *options);
  start_section(*command, "Patterns");
  command
      ->add_option("--pattern", options->pattern,
                   "Show only this: previous, duplicate, induction, or a file with a row of "
                   "numbers from 0 to 1 for every token of one text (default: all three)")
      ->type_name("previous|duplicate|induction|FILE");
  choices(command->add_option(
              "--error-measure", options->measure,
              "mul: fraction of attention on the pattern; abs: 1 - mean absolute difference"),
          {"mul", "abs"})
      ->capture_default_str();
  command->add_flag("--exclude-bos", options->exclude_bos, "Ignore attention to the first token");
  command->add_flag("--exclude-current-token", options->exclude_current_token,
                    "Ignore attention of a token to itself");
  command->add_flag("--near-only", options->near_only,
                    "Leave out entropy and distance, which need another pass over all scores");
  start_section(*command, "Output");
  command->add_option("--top", options->top, "Number of heads to show per pattern")
      ->check(positive())
      ->capture_default_str();
  command->add_flag("--csv", options->csv, "Print every head and column as CSV");
  options->output.add_to(*command,
                         "Folder for attention.csv, attention.parquet and figures/ (layer x head)");
}

}  // namespace qkscope::cli
