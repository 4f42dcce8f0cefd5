#include "cli/completion.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace qkscope::cli {
namespace {

// Returns descriptions of the program, its commands and their subcommands, for completion scripts.
std::vector<CommandRow> flatten_commands(const CommandRow& program) {
  std::vector<CommandRow> rows = {program};
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (const auto& sub : std::vector(rows[i].subcommands)) rows.push_back(sub);
  return rows;
}

std::string last_word(const std::string& path) {
  return path.substr(path.rfind(' ') + 1);
}

std::vector<std::string> subcommand_names(const CommandRow& row) {
  std::vector<std::string> names;
  for (const auto& sub : row.subcommands) names.push_back(last_word(sub.path));
  return names;
}

// Quotes text for bash and zsh.
std::string quote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// Returns the first clause of an explanation, for lists that show one line per option.
std::string short_help(const std::string& help) {
  constexpr std::size_t kLongest = 70;
  const auto clause = help.substr(0, help.find_first_of(";(\n"));
  auto text = wrap(clause, kLongest).front();
  while (!text.empty() && (text.back() == ' ' || text.back() == ',' || text.back() == ':'))
    text.pop_back();
  return text;
}

// ---- bash

// Returns bash code that completes the value of an option or a positional argument.
std::string bash_action(const OptionRow& option) {
  if (option.takes_folders()) return "compopt -o dirnames";
  if (option.takes_files()) return "compopt -o default";
  const auto words = option.allowed_values();
  if (words.empty()) return ":";
  const auto choose =
      fmt::format("_qkscope_words {}", quote(fmt::format("{}", fmt::join(words, " "))));
  return option.value.ends_with("|FILE") ? choose + "; compopt -o default" : choose;
}

// Returns the branches of the bash statement `case "$command $previous"`, which complete the value
// of an option. Options with the same completion share a branch.
std::string bash_values(const std::vector<CommandRow>& rows) {
  std::map<std::string, std::vector<std::string>> patterns;  // by action
  for (const auto& row : rows)
    for (const auto& option : row.options())
      if (!option.value.empty() && !option.is_positional())
        for (const auto& name : option.names)
          patterns[bash_action(option)].push_back(quote(row.path + " " + name));
  std::string text;
  for (const auto& [action, cases] : patterns)
    text += fmt::format("    {})\n      {}; return ;;\n", fmt::join(cases, "|"), action);
  return text;
}

// Returns the branches of the bash statement `case "$command"`, which complete the options,
// arguments and subcommands of each command.
std::string bash_commands(const std::vector<CommandRow>& rows) {
  std::string text;
  for (const auto& row : rows) {
    std::vector<std::string> names;
    std::string arguments = ":";
    for (const auto& option : row.options()) {
      if (option.is_positional())
        arguments = bash_action(option);
      else
        names.insert(names.end(), option.names.begin(), option.names.end());
    }
    if (!row.subcommands.empty())
      arguments = fmt::format("_qkscope_words '{}'", fmt::join(subcommand_names(row), " "));
    text += fmt::format("    {})\n      options='{}'\n      arguments={} ;;\n", quote(row.path),
                        fmt::join(names, " "), quote(arguments));
  }
  return text;
}

std::string bash_paths(const std::vector<CommandRow>& rows) {
  std::vector<std::string> paths;
  for (const auto& row : rows)
    if (!row.path.empty()) paths.push_back(quote(row.path));
  return fmt::format("{}", fmt::join(paths, "|"));
}

constexpr char kBash[] = R"(# bash completion of qkscope, written by `qkscope completion bash`
_qkscope_words() {{
  COMPREPLY+=($(compgen -W "$1" -- "$current"))
}}

_qkscope() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local command= options= arguments=: i
  COMPREPLY=()
  # bash splits --option=value into three words.
  if [[ $current == = ]]; then current=; previous=${{COMP_WORDS[COMP_CWORD-1]}}
  elif [[ $previous == = ]]; then previous=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "${{command:+$command }}${{COMP_WORDS[i]}}" in
      {0}) command="${{command:+$command }}${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$command $previous" in
{1}  esac
  case "$command" in
{2}  esac
  if [[ $current == -* ]]; then _qkscope_words "$options"; else eval "$arguments"; fi
}}

complete -F _qkscope qkscope
)";

// ---- zsh

// Escapes an option description for use in brackets in a specification for zsh's _arguments.
std::string zsh_description(const std::string& help) {
  std::string escaped;
  for (const char c : short_help(help)) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// Returns the "message:action" part that zsh's _arguments expects for the value of an option.
std::string zsh_value(const OptionRow& option) {
  std::string message = option.is_positional() ? option.names.front() : option.value;
  std::ranges::replace(message, ':', '.');
  const auto words = option.allowed_values();
  if (option.takes_folders()) return message + ":_files -/";
  if (option.takes_files()) return message + ":_files";
  if (words.empty()) return message + ": ";
  const auto list = fmt::format("{}", fmt::join(words, " "));
  return message +
         (option.value.ends_with("|FILE") ? ":{compadd " + list + "; _files}" : ":(" + list + ")");
}

std::string zsh_specification(const OptionRow& option) {
  if (option.is_positional()) return quote((option.repeatable ? "*:" : ":") + zsh_value(option));
  std::string text;
  for (const auto& name : option.names) {
    const auto value = option.value.empty() ? "" : ":" + zsh_value(option);
    text += (text.empty() ? "" : " ") +
            quote(fmt::format("{}{}{}[{}]{}", option.repeatable ? "*" : "", name,
                              option.value.empty() || !name.starts_with("--") ? "" : "=",
                              zsh_description(option.help), value));
  }
  return text;
}

std::string zsh_function(const std::string& path) {
  std::string name = "_qkscope";
  for (const char c : path.empty() ? path : " " + path) name += c == ' ' ? '_' : c;
  return name;
}

// Returns a zsh function that completes the arguments of one command.
std::string zsh_command(const CommandRow& row) {
  std::string text = fmt::format("{}() {{\n", zsh_function(row.path));
  if (row.subcommands.empty()) {
    text += "  _arguments -s";
    for (const auto& option : row.options()) text += " \\\n    " + zsh_specification(option);
    return text + "\n}\n\n";
  }
  text += "  local line state\n  _arguments -C";
  for (const auto& option : row.options()) text += " \\\n    " + zsh_specification(option);
  text +=
      " \\\n    '1:command:->command' '*::argument:->argument'\n  case $state in\n    command)\n"
      "      local -a commands=(";
  for (const auto& sub : row.subcommands)
    text += fmt::format("\n        {}", quote(last_word(sub.path) + ":" + short_help(sub.help)));
  text += "\n      )\n      _describe command commands ;;\n    argument)\n      case $line[1] in\n";
  for (const auto& sub : row.subcommands)
    text += fmt::format("        {}) {} ;;\n", last_word(sub.path), zsh_function(sub.path));
  return text + "      esac ;;\n  esac\n}\n\n";
}

// ---- fish

// Quotes text for fish, where a backslash is an escape character even inside single quotes.
std::string fish_quote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

std::string fish_option(const CommandRow& row, const OptionRow& option) {
  auto text = fmt::format("complete -c qkscope -n \"__qkscope_at {}\"",
                          row.path.empty() ? "''" : fmt::format("'{}'", row.path));
  for (const auto& name : option.names)
    if (name.starts_with("--"))
      text += " -l " + name.substr(2);
    else if (name.starts_with('-'))
      text += " -s " + name.substr(1);
  const auto words = option.allowed_values();
  if (option.takes_folders())
    text += " -x -a '(__fish_complete_directories)'";
  else if (option.takes_files() || option.value.ends_with("|FILE"))
    text += option.is_positional() ? " -F" : " -r -F";
  else if (!option.value.empty() && !option.is_positional())
    text += " -x";
  if (!words.empty()) text += fmt::format(" -a '{}'", fmt::join(words, " "));
  return text + (option.is_positional() ? "" : " -d " + fish_quote(short_help(option.help))) + "\n";
}

std::string fish_rows(const std::vector<CommandRow>& rows) {
  std::string text;
  for (const auto& row : rows) {
    for (const auto& sub : row.subcommands)
      text += fmt::format("complete -c qkscope -n \"__qkscope_at '{}'\" -a {} -d {}\n", row.path,
                          last_word(sub.path), fish_quote(short_help(sub.help)));
    for (const auto& option : row.options())
      if (!option.is_positional() || option.takes_files() || !option.allowed_values().empty())
        text += fish_option(row, option);
  }
  return text;
}

constexpr char kFish[] = R"(# fish completion of qkscope, written by `qkscope completion fish`
function __qkscope_at --description 'Whether the command line has chosen this command'
  set -l chosen
  for word in (commandline -opc)[2..-1]
    set -l longer (string trim -- "$chosen $word")
    contains -- "$longer" {} && set chosen $longer
  end
  test "$chosen" = "$argv[1]"
end

complete -c qkscope -f
{})";

}  // namespace

std::string bash_completion(const CommandRow& program) {
  const auto rows = flatten_commands(program);
  return fmt::format(kBash, bash_paths(rows), bash_values(rows), bash_commands(rows));
}

std::string zsh_completion(const CommandRow& program) {
  std::string text =
      "#compdef qkscope\n# zsh completion of qkscope, written by `qkscope completion zsh`\n\n";
  auto rows = flatten_commands(program);
  for (const auto& row : rows) text += zsh_command(row);
  // zsh either autoloads this file as the function _qkscope or sources it.
  return text +
         "if [[ $funcstack[1] == _qkscope ]]; then\n  _qkscope \"$@\"\nelse\n  compdef _qkscope "
         "qkscope\nfi\n";
}

std::string fish_completion(const CommandRow& program) {
  const auto rows = flatten_commands(program);
  std::vector<std::string> paths;
  for (const auto& row : rows)
    if (!row.path.empty()) paths.push_back(quote(row.path));
  return fmt::format(kFish, fmt::join(paths, " "), fish_rows(rows));
}

}  // namespace qkscope::cli
