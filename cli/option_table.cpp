#include "cli/option_table.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/common_options.h"

namespace qkscope::cli {
namespace {

std::string to_upper_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// Placeholders such as FILE that the help shows for text values, by the name of the option. A
// command that needs another placeholder for an option calls type_name().
struct TextPlaceholder {
  std::string_view name;
  const char* placeholder;
};
constexpr TextPlaceholder kPlaceholders[] = {
    {"--bandwidth", "SIZE"},      {"--batch", "SIZES"},
    {"--branch", "NAME"},         {"--by", "COLUMN"},
    {"--compare", "FOLDER"},      {"--components", "N,N"},
    {"--config", "FILE"},         {"--data", "FOLDER"},
    {"--dataset", "PATH"},        {"--device", "auto|cpu|cuda|cuda:N"},
    {"--device-memory", "SIZE"},  {"--dtype", "float32|float16|bfloat16"},
    {"--format", "svg,png,pdf"},  {"--groups", "A,B,C"},
    {"--heads", "LAYER.HEAD"},    {"--hooks", "PATTERNS"},
    {"--id-column", "COLUMN"},    {"--jsonl", "FILE"},
    {"--keys", "FOLDER"},         {"--match", "PATTERN"},
    {"--model", "MODEL"},         {"--older-than", "AGE"},
    {"--out", "FOLDER"},          {"--pair", "X,Y"},
    {"--positions", "POSITIONS"}, {"--scores", "FILE"},
    {"--set", "KEY=VALUE"},       {"--shard", "I/N|auto"},
    {"--slurm", "KEY=VALUE"},     {"--speed", "FLOPS"},
    {"--stop", "TEXT"},           {"--text", "TEXT"},
    {"--text-column", "COLUMN"},  {"--text-file", "FILE"},
    {"--token-ids", "IDS"},       {"--tokenizer", "MODEL"},
    {"--write-sweep", "FILE"},    {"config", "FILE"},
    {"data_root", "FOLDER"},      {"file", "FILE"},
    {"folder", "FOLDER"},         {"model", "MODEL"},
    {"other", "FOLDER"},          {"path", "PATH"},
    {"results", "FOLDER"},        {"statistics", "FOLDER"},
    {"sweeps", "FOLDER"}};

// Returns the placeholder that help shows for an option's value, such as FOLDER, N or NUMBER.
std::string value_placeholder(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const auto type = option.get_type_name();
  if (type == "INT" || type == "UINT") return "N";
  if (type != "TEXT") return type == "FLOAT" ? "NUMBER" : type;
  const auto found = std::ranges::find(kPlaceholders, option.get_name(), &TextPlaceholder::name);
  return found == std::end(kPlaceholders) ? "NAME" : found->placeholder;
}

std::string help_with_default(const CLI::Option& option) {
  const auto& help = option.get_description();
  const auto value = option.get_default_str();
  if (value.empty() || help.find("default:") != std::string::npos) return help;
  return fmt::format("{} (default: {})", help, value);
}

OptionSection& find_or_add_section(std::vector<OptionSection>& sections, const std::string& title) {
  const auto found = std::ranges::find(sections, title, &OptionSection::title);
  return found != sections.end() ? *found : sections.emplace_back(OptionSection{title, {}});
}

// Adds the options of a command and of its groups (unnamed subcommands in CLI11) to `sections`.
void add_sections(const CLI::App& app, const std::string& title,
                  std::vector<OptionSection>& sections) {
  for (const auto* group : app.get_subcommands({}))
    if (group->get_name().empty()) add_sections(*group, group->get_description(), sections);
  for (const auto* option : app.get_options()) {
    const bool inherited_help = option == app.get_help_ptr() && !title.empty();
    if (option->get_group().empty() || inherited_help) continue;
    const auto heading = !option->nonpositional() ? "Arguments"
                         : !title.empty()         ? title
                                                  : option->get_group();
    find_or_add_section(sections, heading).options.push_back(option_row(*option));
  }
}

// Sort key of help sections: arguments, options of the command, options common to all commands.
int section_rank(const OptionSection& section) {
  return section.title == "Arguments" ? 0 : section.title == kCommonGroup ? 2 : 1;
}

CommandRow command_row(const CLI::App& command, const std::string& path) {
  CommandRow row{.path = path,
                 .group = command.get_group(),
                 .help = command.get_description(),
                 .notes = command.get_footer(),
                 .sections = {},
                 .subcommands = {}};
  add_sections(command, "", row.sections);
  std::ranges::stable_sort(row.sections, {}, section_rank);
  for (const auto* sub : command.get_subcommands({}))
    if (!sub->get_name().empty() && !sub->get_group().empty())
      row.subcommands.push_back(
          command_row(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name()));
  return row;
}

void append_leaf_commands(const CommandRow& row, std::vector<CommandRow>& all) {
  for (const auto& sub : row.subcommands) {
    if (sub.subcommands.empty()) all.push_back(sub);
    append_leaf_commands(sub, all);
  }
}

}  // namespace

std::vector<std::string> OptionRow::allowed_values() const {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= value.size();) {
    const auto end = std::min(value.find_first_of("|,", begin), value.size());
    const auto word = value.substr(begin, end - begin);
    const bool is_placeholder =
        std::ranges::any_of(word, [](unsigned char c) { return std::isupper(c) || c == '.'; });
    if (!word.empty() && !is_placeholder) words.push_back(word);
    begin = end + 1;
  }
  return words;
}

bool OptionRow::takes_folders() const {
  return value == "FOLDER";
}

bool OptionRow::takes_files() const {
  return value == "FILE" || value == "PATH" || value == "MODEL" || takes_folders();
}

std::vector<OptionRow> CommandRow::options() const {
  std::vector<OptionRow> all;
  for (const auto& section : sections)
    all.insert(all.end(), section.options.begin(), section.options.end());
  return all;
}

OptionRow option_row(const CLI::Option& option) {
  OptionRow row{.names = {},
                .value = value_placeholder(option),
                .help = help_with_default(option),
                .required = option.get_required(),
                .repeatable = option.get_expected_max() > 1};
  for (const auto& name : option.get_snames()) row.names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) row.names.push_back("--" + name);
  if (row.names.empty()) row.names.push_back(to_upper_case(option.get_name(true)));
  return row;
}

CommandRow option_table(const CLI::App& command) {
  std::string path;
  for (const auto* app = &command; app->get_parent() != nullptr; app = app->get_parent())
    path = path.empty() ? app->get_name() : fmt::format("{} {}", app->get_name(), path);
  return command_row(command, path);
}

std::vector<CommandRow> leaf_commands(const CommandRow& row) {
  std::vector<CommandRow> all;
  append_leaf_commands(row, all);
  return all;
}

std::string command_line(const CLI::App& command) {
  const auto* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : command_line(*parent) + " " + command.get_name();
}

}  // namespace qkscope::cli
