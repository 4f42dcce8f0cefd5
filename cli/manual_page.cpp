// The manual page.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/common_options.h"
#include "cli/completion.h"
#include "qkscope/version.h"

namespace qkscope::cli {
namespace {

// Escapes text for roff: backslashes, hyphens (as \-), and control characters at the beginning of a
// line.
std::string escape_roff(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    const bool begins_line = escaped.empty() || escaped.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) escaped += "\\&";
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else
      escaped += c;
  }
  return escaped;
}

std::string option_entry(const OptionRow& option) {
  std::vector<std::string> names;
  for (const auto& name : option.names)
    names.push_back(fmt::format("\\fB{}\\fR", escape_roff(name)));
  const auto value = option.value.empty() || option.is_positional()
                         ? ""
                         : fmt::format(" \\fI{}\\fR", escape_roff(option.value));
  return fmt::format(".TP\n{}{}\n{}{}\n", fmt::join(names, ", "), value, escape_roff(option.help),
                     option.required && !option.is_positional() ? " (required)" : "");
}

std::string command_entry(const CommandRow& row) {
  auto text = fmt::format(".SS \"qkscope {}\"\n{}\n", escape_roff(row.path), escape_roff(row.help));
  for (const auto& section : row.sections) {
    if (section.title == kCommonGroup) continue;
    text += fmt::format(".PP\n{}:\n", escape_roff(section.title));
    for (const auto& option : section.options) text += option_entry(option);
  }
  if (!row.notes.empty()) text += fmt::format(".PP\n.nf\n{}\n.fi\n", escape_roff(row.notes));
  return text;
}

constexpr char kEnd[] = R"(.SH EXIT STATUS
0 on success, 1 after a failure of the machine or the network, 2 after bad input.
.SH ENVIRONMENT
.TP
\fBHF_HOME\fR, \fBHF_HUB_CACHE\fR
Folders of the Hugging Face cache.
.TP
\fBHF_HUB_OFFLINE\fR
1: use what the cache holds, without the network.
.TP
\fBHF_TOKEN\fR
Token for private repositories.
.TP
\fBQKSCOPE_CPU\fR
Instruction set to use; an unknown name prints the ones there are.
)";

}  // namespace

std::string manual_page(const CommandRow& program) {
  auto text = fmt::format(
      ".TH QKSCOPE 1 \"\" \"qkscope {}\" \"User Commands\"\n.SH NAME\nqkscope \\- {}\n.SH "
      "SYNOPSIS\n"
      "\\fBqkscope\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH COMMANDS\n",
      version_string(), escape_roff(program.help));
  const auto commands = leaf_commands(program);
  for (const auto& row : commands) text += command_entry(row);
  text += ".SH COMMON OPTIONS\nEvery command has these options.\n";
  for (const auto& section : commands.front().sections)
    if (section.title == kCommonGroup)
      for (const auto& option : section.options) text += option_entry(option);
  return text + fmt::format(".SH EXAMPLES\n.nf\n{}\n.fi\n", escape_roff(program.notes)) + kEnd;
}

}  // namespace qkscope::cli
