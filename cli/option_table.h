// The commands and options of a program as rows of a table. Help, shell completion, the manual page
// and error messages are made from these rows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace qkscope::cli {

// An option, or a positional argument.
struct OptionRow {
  std::vector<std::string> names;  // "-v", "--verbose"; "DATA_ROOT" for a positional argument
  // Placeholder for the value; "" for a flag. The shell completes FILE, PATH, MODEL and FOLDER with
  // file names; words in lower case (mul|abs, svg,png,pdf) are the allowed values.
  std::string value;
  std::string help;  // one sentence, with the default
  bool required = false;
  bool repeatable = false;

  bool is_positional() const { return !names.front().starts_with('-'); }
  // Returns the fixed values that the option accepts, without placeholders such as N.
  std::vector<std::string> allowed_values() const;
  bool takes_files() const;    // FILE, PATH, MODEL and FOLDER
  bool takes_folders() const;  // FOLDER
};

// Options under one heading of the help.
struct OptionSection {
  std::string title;
  std::vector<OptionRow> options;
};

// A command, or the program itself.
struct CommandRow {
  std::string path;   // "hub download"; "" for the program
  std::string group;  // heading in the list of commands
  std::string help;
  std::string notes;                    // text after the options, with the example
  std::vector<OptionSection> sections;  // positional arguments first, common options last
  std::vector<CommandRow> subcommands;  // without hidden ones

  std::vector<OptionRow> options() const;  // of all sections
};

OptionRow option_row(const CLI::Option& option);

// Describes a command, its options and its subcommands, for help, completion and documentation.
CommandRow option_table(const CLI::App& command);

// Returns the table rows of all leaf commands under `row`, such as "inspect" and "hub download".
std::vector<CommandRow> leaf_commands(const CommandRow& row);

// Returns the full name of a command with its parent commands: "qkscope hub download".
std::string command_line(const CLI::App& command);

// Makes --help of the program and of all commands print text generated from the option table. Call
// after all commands have been added.
void use_table_for_help(CLI::App& app);

// Returns the text of --help, wrapped at `width` characters.
std::string help_text(const CommandRow& row, const std::string& program, std::size_t width);

// Splits text into lines of at most `width` characters at spaces. A longer word gets a separate
// line; line feeds in the text are kept.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

}  // namespace qkscope::cli
