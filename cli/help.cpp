// The text of --help.
#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/option_table.h"

namespace qkscope::cli {
namespace {

constexpr std::size_t kLeftColumn = 26;  // width of names and placeholders
constexpr std::size_t kWidestText = 100;
constexpr std::size_t kNarrowestText = 60;

// Returns the width of the terminal, clamped to a readable range.
std::size_t text_width() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
    return kWidestText;
  return std::clamp<std::size_t>(size.ws_col, kNarrowestText, kWidestText);
}

// Returns one entry of a help list: a name on the left and its explanation on the right.
std::string help_entry(const std::string& name, const std::string& help, std::size_t width) {
  const std::string left = "  " + name;
  const std::string indent(kLeftColumn, ' ');
  std::string text = left;
  bool first = true;
  for (const auto& line : wrap(help, width - kLeftColumn)) {
    if (!first || left.size() + 2 > kLeftColumn)
      text += "\n" + indent;
    else
      text += indent.substr(left.size());
    text += line;
    first = false;
  }
  return text + "\n";
}

std::string option_name(const OptionRow& option) {
  if (option.is_positional()) return option.names.front() + (option.repeatable ? " ..." : "");
  const auto names = fmt::format("{}", fmt::join(option.names, ", "));
  return option.value.empty() ? names : names + " " + option.value;
}

std::string option_help(const OptionRow& option) {
  return option.required && !option.is_positional() ? option.help + " (required)" : option.help;
}

// Returns the arguments and required options of a usage line: "DATA_ROOT --out FOLDER [OPTIONS]".
std::string usage(const CommandRow& row) {
  std::string text;
  bool optional = false;
  for (const auto& option : row.options()) {
    if (option.is_positional() && !option.required)
      text += fmt::format(" [{}]", option_name(option));
    else if (option.required)
      text += fmt::format(" {}", option_name(option));
    else
      optional = true;
  }
  if (!row.subcommands.empty()) return text + " COMMAND [OPTIONS]";
  return optional ? text + " [OPTIONS]" : text;
}

std::string subcommand_list(const CommandRow& row, std::size_t width) {
  std::string text;
  std::string group;
  for (const auto& sub : row.subcommands) {
    const auto heading = sub.group == "Subcommands" ? "Commands" : sub.group;
    if (group != heading) text += fmt::format("\n{}:\n", heading);
    group = heading;
    text += help_entry(sub.path.substr(sub.path.rfind(' ') + 1), sub.help, width);
  }
  return text;
}

class TableFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    const auto* program = app;
    while (program->get_parent() != nullptr) program = program->get_parent();
    return help_text(option_table(*app), program->get_name(), text_width());
  }
};

}  // namespace

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    auto paragraph = text.substr(begin, end - begin);
    while (paragraph.size() > width) {
      auto space = paragraph.rfind(' ', width);
      if (space == paragraph.npos || space == 0) space = paragraph.find(' ', width);
      if (space == paragraph.npos) break;
      lines.emplace_back(paragraph.substr(0, space));
      paragraph.remove_prefix(space + 1);
    }
    lines.emplace_back(paragraph);
    begin = end + 1;
  }
  return lines;
}

std::string help_text(const CommandRow& row, const std::string& program, std::size_t width) {
  auto text = fmt::format("{}\n\nUsage: {}{}{}\n", fmt::join(wrap(row.help, width), "\n"), program,
                          row.path.empty() ? "" : " " + row.path, usage(row));
  text += subcommand_list(row, width);
  for (const auto& section : row.sections) {
    text += fmt::format("\n{}:\n", section.title);
    for (const auto& option : section.options)
      text += help_entry(option_name(option), option_help(option), width);
  }
  if (!row.notes.empty()) text += fmt::format("\n{}\n", fmt::join(wrap(row.notes, width), "\n"));
  return text;
}

void use_table_for_help(CLI::App& app) {
  app.formatter(std::make_shared<TableFormatter>());
  if (auto* help = app.get_help_ptr(); help != nullptr)
    help->description("Print this help and exit")->group(kCommonGroup);
  if (auto* version = app.get_version_ptr(); version != nullptr)
    version->description("Print the version and exit")->group(kCommonGroup);
  for (auto* sub : app.get_subcommands({})) use_table_for_help(*sub);
}

}  // namespace qkscope::cli
