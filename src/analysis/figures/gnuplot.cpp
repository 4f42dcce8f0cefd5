#include "analysis/figures/gnuplot.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analysis/figures/style.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/io/data_folder.h"
#include "base/io/mapped_file.h"

namespace qkscope {
namespace {

// What a program that is started reads and writes.
class FileActions {
 public:
  FileActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  void open(int descriptor, const std::string& path, int flags) {
    ::posix_spawn_file_actions_addopen(&actions_, descriptor, path.c_str(), flags, 0644);
  }
  void change_folder(const std::string& path) {
    ::posix_spawn_file_actions_addchdir_np(&actions_, path.c_str());
  }
  const ::posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  ::posix_spawn_file_actions_t actions_;
};

// The one that a package brings, else the one on the PATH.
std::string gnuplot_program() {
  for (const auto& folder : helper_folders())
    if (auto program = folder + "/gnuplot"; ::access(program.c_str(), X_OK) == 0) return program;
  return "gnuplot";
}

// The exit status; without a shell, so that no name is ever read as a command.
int spawn_gnuplot(std::vector<std::string> arguments, const FileActions& actions) {
  const auto program = gnuplot_program();
  arguments.insert(arguments.begin(), program);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, program.c_str(), actions.get(), nullptr, argv.data(), ::environ);
  if (error == ENOENT)
    failure(
        "gnuplot is not installed (no 'gnuplot' on the PATH), and it draws the figures; on Debian "
        "and Ubuntu: apt-get install gnuplot-nox fonts-liberation");
  if (error != 0) failure("gnuplot cannot be started: {}", std::strerror(error));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) failure("waiting for gnuplot: {}", std::strerror(errno));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The cairo terminals take points for 1/96 inch; the scales make all three formats alike.
constexpr char kTerminals[] = R"(if (format eq 'svg') {{
  set terminal svg size 72*width, 72*height fixed enhanced font '{font},{size}' background 'white'
}}
if (format eq 'png') {{
  set terminal pngcairo size {dpi}*width, {dpi}*height enhanced font '{font},{size}' \
    fontscale {dpi}/96.0 linewidth {dpi}/72.0 pointscale {dpi}/72.0 background 'white'
}}
if (format eq 'pdf') {{
  set terminal pdfcairo size width, height enhanced font '{font},{size}' fontscale 0.75 linewidth 2 \
    pointscale 1 background 'white'
}}
)";

constexpr char kStyle[] = R"(set encoding utf8
set datafile separator ','
set datafile columnheaders
set border 3 lw 0.7 lc rgb '{ink}'
set tics nomirror out scale 0.5
set grid y back lw 0.4 lt 1 lc rgb '{hair}'
set key top left Left reverse samplen 1.6 spacing 1.0 font ',{small}' noautotitle
set bars small
set pointintervalbox 0
set style fill solid noborder
mark = format eq 'svg' ? 1.35 : 1  # SVG draws points smaller
)";

}  // namespace

void require_gnuplot() {
  FileActions actions;
  actions.open(STDIN_FILENO, "/dev/null", O_RDONLY);
  actions.open(STDOUT_FILENO, "/dev/null", O_WRONLY);
  actions.open(STDERR_FILENO, "/dev/null", O_WRONLY);
  const int status = spawn_gnuplot({"--version"}, actions);
  if (status != 0) failure("'gnuplot --version' ends with status {}; is it installed?", status);
}

std::string gnuplot_script(const std::string& name, const Figure& figure,
                           const std::vector<std::string>& formats) {
  std::string text = fmt::format(
      "# {}. `gnuplot {}.gp` in this folder draws it again.\n"
      "formats = '{}'\n"
      "data = '{}.csv'\n"
      "width = {:.3f}  # inches\n"
      "height = {:.3f}\n"
      "\n"
      "if (!exists('format')) {{  # the file loads itself once per format\n"
      "  do for [format in formats] {{ load '{}.gp' }}\n"
      "  exit\n"
      "}}\n"
      "reset\n",
      name, name, fmt::join(formats, " "), name, figure.width, figure.height, name);
  text += fmt::format(kTerminals, fmt::arg("font", style::kFont),
                      fmt::arg("size", style::kFontSize), fmt::arg("dpi", style::kDotsPerInch));
  text += fmt::format("set output '{}.'.format\n", name);
  text += fmt::format(kStyle, fmt::arg("ink", style::kInk), fmt::arg("hair", style::kHair),
                      fmt::arg("small", style::kSmall));
  return text + "\n" + figure.script + "\nset output\n";
}

void run_gnuplot(const std::string& folder, const std::string& name) {
  const std::string messages = folder + "/" + name + ".log";
  FileActions actions;
  actions.open(STDIN_FILENO, "/dev/null", O_RDONLY);
  actions.open(STDOUT_FILENO, "/dev/null", O_WRONLY);
  actions.open(STDERR_FILENO, messages, O_WRONLY | O_CREAT | O_TRUNC);
  actions.change_folder(folder);
  // The user's own start-up files must not change the figures.
  const int status = spawn_gnuplot({"--default-settings", name + ".gp"}, actions);
  const MappedFile log(messages);
  if (status != 0) failure("gnuplot could not draw {}:\n{}", name, log.text());
  if (!log.text().empty()) log::debug("gnuplot on {}:\n{}", name, log.text());
}

}  // namespace qkscope
