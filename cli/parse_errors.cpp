#include "cli/parse_errors.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/option_table.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

// A renamed option: its old and current names.
struct OldOption {
  std::string_view command;  // "": any command that has the current name
  std::string_view name;
  std::string_view now;
};
constexpr OldOption kOldOptions[] = {{"generate", "--max-tokens", "--max-new-tokens"},
                                     {"generate", "--prompt", "--text"},
                                     {"generate", "--prompt-file", "--text-file"},
                                     {"", "--max-length", "--max-tokens"},
                                     {"", "--devices", "--device"},
                                     {"", "--config-override", "--set"},
                                     {"", "--q-heads", "--head-counts"},
                                     {"", "--k-heads", "--head-counts"},
                                     {"figures", "--head", "--heads"},
                                     {"export", "--checkpoint", "--model"}};

// Returns the innermost subcommand on the command line, or the program if there is none.
const CLI::App& chosen_command(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : chosen_command(*chosen.front());
}

std::vector<std::string> option_names(const CommandRow& row) {
  std::vector<std::string> names;
  for (const auto& option : row.options())
    if (!option.is_positional())
      names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

std::string current_option_name(const std::string& command, const std::string& option,
                                const std::vector<std::string>& names) {
  for (const auto& old : kOldOptions)
    if (old.name == option && (old.command.empty() || old.command == command) &&
        std::ranges::count(names, old.now) > 0)
      return std::string(old.now);
  return "";
}

// Corrects a mistyped word: the only name that begins with it, else the nearest by edit distance.
std::string suggest_name(const std::string& word, const std::vector<std::string>& names) {
  const auto starts = [&](const std::string& name) { return name.starts_with(word); };
  if (word.size() > 2 && std::ranges::count_if(names, starts) == 1)
    return *std::ranges::find_if(names, starts);
  return closest_spelling(word, names);
}

std::string unknown_option_message(const CommandRow& row, const std::string& word) {
  const auto option = word.substr(0, word.find('='));
  const auto names = option_names(row);
  if (const auto now = current_option_name(row.path, option, names); !now.empty())
    return fmt::format("{} is called {} now", option, now);
  const auto guess = option.starts_with("--") ? suggest_name(option, names) : "";
  return fmt::format("{}there is no option {}{}", row.path.empty() ? "" : row.path + ": ", option,
                     guess.empty() ? "" : fmt::format("; did you mean {}?", guess));
}

std::string unknown_command_message(const CommandRow& row, const std::string& word) {
  std::vector<std::string> names;
  for (const auto& sub : row.subcommands) names.push_back(sub.path.substr(sub.path.rfind(' ') + 1));
  const auto guess = suggest_name(word, names);
  return fmt::format("'{}' is not a command{}{}", word,
                     row.path.empty() ? "" : fmt::format(" of {}", row.path),
                     guess.empty() ? "" : fmt::format("; did you mean '{}'?", guess));
}

std::string surplus_argument_message(const CommandRow& row, const std::string& word) {
  std::vector<std::string> arguments;
  for (const auto& option : row.options())
    if (option.is_positional()) arguments.push_back(option.names.front());
  return fmt::format("'{}' was not expected: {} takes {}", word,
                     row.path.empty() ? "the program" : row.path,
                     arguments.empty() ? "options only"
                                       : fmt::format("{} and options", fmt::join(arguments, " ")));
}

// Returns an error message for the first unrecognised word, or "" if there is none. Unknown options
// are reported first, because the words after them may be their values.
std::string unknown_word_message(const CLI::App& command) {
  const auto words = command.remaining();
  if (words.empty()) return "";
  const auto row = option_table(command);
  const auto option =
      std::ranges::find_if(words, [](const std::string& word) { return word.starts_with('-'); });
  if (option != words.end()) return unknown_option_message(row, *option);
  return row.subcommands.empty() ? surplus_argument_message(row, words.front())
                                 : unknown_command_message(row, words.front());
}

// Returns the option that a CLI11 message refers to: the first option named in the message.
const CLI::Option* find_mentioned_option(const CLI::App& command, std::string_view message) {
  std::vector<const CLI::App*> places = {&command};
  for (const auto* group : command.get_subcommands({}))
    if (group->get_name().empty()) places.push_back(group);
  for (const auto* place : places)
    for (const auto* option : place->get_options()) {
      const auto at = message.find(option->get_name());
      const auto end = at + option->get_name().size();
      if (at != message.npos && (end == message.size() || message.find_first_of(": ,", end) == end))
        return option;
    }
  return nullptr;
}

// Rephrases "Exactly 1 option from [--a,--b] is required" as "expected one of --a, --b".
std::string option_group_message(const std::string& message) {
  const auto begin = message.find('[');
  const auto end = message.find(']');
  if (begin == message.npos || end == message.npos) return message;
  const auto names = split(message.substr(begin + 1, end - begin - 1), ',');
  const bool none = message.ends_with("] is required");
  return fmt::format("{} {}", none ? "expected one of" : "expected only one of",
                     fmt::join(names, ", "));
}

std::string rephrase_error(const CLI::App& command, const CLI::ParseError& error) {
  std::string message = error.what();
  const std::string kind = error.get_name();
  const auto* option = find_mentioned_option(command, message);
  if (kind == "RequiredError" && message.starts_with("A subcommand"))
    return command.get_parent() == nullptr ? "a command is needed"
                                           : command_line(command) + " needs a command";
  if (kind == "RequiredError" && option != nullptr && option->get_lnames().empty())
    return option_row(*option).names.front() + " is missing: " + option->get_description();
  if (kind == "RequiredError") return option_group_message(message);
  if (option == nullptr) return message;
  const auto row = option_row(*option);
  if (kind == "ConversionError" && !row.value.empty())
    return fmt::format("{}: found '{}'; expected {}", row.names.back(),
                       fmt::join(option->results(), " "),
                       row.value == "N"        ? "a whole number"
                       : row.value == "NUMBER" ? "a number"
                                               : row.value);
  if (kind == "ConversionError") return row.names.back() + ": takes no value";
  if (kind == "ArgumentMismatch" && option->count() <= 1 && row.value.find(',') == row.value.npos)
    return fmt::format("{}: the value is missing; expected {}", row.names.back(), row.value);
  if (kind == "ArgumentMismatch" && !row.repeatable)
    return fmt::format("{}: given {} times; expected once", row.names.back(), option->count());
  if (kind == "ArgumentMismatch")
    return fmt::format("{}: found {} values; expected {}", row.names.back(), option->count(),
                       row.value);
  return message;
}

}  // namespace

std::string parse_error_message(const CLI::App& app, const CLI::ParseError& error) {
  const auto& chosen = chosen_command(app);
  std::string message;
  const CLI::App* about = &app;
  for (; message.empty(); about = about->get_subcommands().front()) {
    message = unknown_word_message(*about);
    if (!message.empty() || about == &chosen) break;
  }
  if (message.empty()) message = rephrase_error(chosen, error);
  const bool has_commands = !option_table(*about).subcommands.empty();
  return fmt::format("error: {}\n'{} --help' lists the {}.\n", printable(message),
                     command_line(*about), has_commands ? "commands" : "options");
}

}  // namespace qkscope::cli
