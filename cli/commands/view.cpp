// qkscope view: shows the attention of a model over one text in the browser.
#include <chrono>
#include <filesystem>
#include <memory>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <unistd.h>

#include "cli/captured_text.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/json.h"
#include "cli/logging.h"
#include "cli/model_options.h"
#include "cli/stop_signal.h"
#include "cli/token_input.h"
#include "qkscope/experimental/text.h"
#include "qkscope/experimental/viewer.h"
#include "qkscope/texts.h"
#include "qkscope/tokenizer.h"

namespace qkscope::cli {
namespace {

constexpr std::size_t kMostHeads = 4;  // heads side by side on the page

struct ViewArguments {
  CommonOptions common;
  ModelArguments model;
  std::vector<std::string> checkpoints;
  TokenInput input;
  std::string dataset;
  std::string capture;
  std::string text_column = "text";
  std::int64_t row = 0;
  std::string results;
  std::string heads;
  std::int64_t query = -1;
  std::string memory;
  std::string host = "127.0.0.1";
  int port = 0;
  bool no_open = false;
  std::string export_file;
  std::string queries;
  std::string budget = "30MB";
};

std::vector<std::int32_t> dataset_row(const ViewArguments& options, const std::string& folder) {
  CorpusOptions corpus_options;
  corpus_options.path = options.dataset;
  corpus_options.text_column = options.text_column;
  const auto corpus = open_corpus(corpus_options);
  for (Document document; corpus->next(document);)
    if (document.row == options.row)
      return Tokenizer::load(folder)
          .encode(document.text, {.add_special_tokens = !options.input.no_special})
          .ids;
  reject("{}: there is no text in row {}; the dataset has {} rows", options.dataset, options.row,
         corpus->counts().rows);
}

std::vector<ViewerHead> read_heads(const std::string& option) {
  std::vector<ViewerHead> heads;
  if (option.empty()) return heads;
  for (const auto& part : split(option, ',')) {
    const auto dot = part.find('.');
    if (dot == std::string::npos)
      reject("--heads: found '{}', expected LAYER.HEAD, as in 3.1", part);
    heads.push_back({parse_integer(part.substr(0, dot), "--heads"),
                     parse_integer(part.substr(dot + 1), "--heads")});
  }
  if (heads.size() > kMostHeads)
    reject("--heads: found {} heads, expected at most {}", heads.size(), kMostHeads);
  return heads;
}

std::string text_title(const ViewArguments& options) {
  if (!options.dataset.empty()) return fmt::format("{}, row {}", options.dataset, options.row);
  return std::filesystem::path(options.input.text_file).filename().string();
}

// Opens the page in the user's browser. A missing xdg-open is not an error, because the address is
// also printed.
void open_browser(const std::string& url) {
  std::string program = "xdg-open";
  std::string address = url;
  char* const arguments[] = {program.data(), address.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int output : {STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, output, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  posix_spawnp(&child, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
}

void serve(Viewer& viewer, const ViewArguments& options) {
  if (options.host != "127.0.0.1" && options.host != "localhost" && options.host != "::1")
    warn(
        "--host {}: everybody who can reach this address and has the link sees the text, without "
        "encryption; 'ssh -L' is safer",
        options.host);
  const auto& stop = watch_stop_signals();
  const auto url = viewer.serve({.host = options.host, .port = options.port});
  fmt::print("{}\n", url);
  std::fflush(stdout);
  if (!options.common.quiet) fmt::print(stderr, "Ctrl-C ends the viewer.\n");
  if (!options.no_open) open_browser(url);
  while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  viewer.stop();
}

// Reads the text selected by --capture and --row. Returns the model folder: --model if given, else
// the model named in the capture.
std::string read_capture(ViewArguments& options, ViewerOptions& viewed) {
  const auto config = read_captured_config(options.capture);
  if (options.model.name.empty()) {
    options.model.name = config.model.name;
    if (options.model.revision.empty()) options.model.revision = config.model.revision.value_or("");
    if (const auto& changed = config.model.config_overrides; !changed.empty())
      for (const auto& [key, value] : parse_json(changed, options.capture).items())
        options.model.overrides.push_back(key + "=" + dump_json(value));
  }
  const auto folder = options.model.fetch(options.common.quiet);
  const auto text = read_captured_text(options.capture, config, folder, options.row);
  viewed.ids = text.ids;
  viewed.title = text.title;
  if (viewed.heads.empty()) {
    const auto index = index_capture(options.capture, true);
    if (!index.queries.empty())
      viewed.heads.push_back({index.queries.front().layer, index.queries.front().head});
  }
  viewed.captured = read_captured_heads(options.capture, text.key, viewed.heads);
  return folder;
}

std::string read_text(ViewArguments& options, ViewerOptions& viewed) {
  if (!options.capture.empty()) return read_capture(options, viewed);
  if (options.model.name.empty()) reject("--model: none is given, expected the model to run");
  const auto folder = options.model.fetch(options.common.quiet);
  viewed.ids = options.dataset.empty() ? options.input.read(folder) : dataset_row(options, folder);
  viewed.title = text_title(options);
  return folder;
}

void run(ViewArguments& options) {
  ViewerOptions viewed;
  viewed.results = options.results;
  viewed.heads = read_heads(options.heads);
  const auto folder = read_text(options, viewed);
  viewed.query = options.query;
  if (!options.memory.empty()) viewed.memory = parse_bytes(options.memory, "--memory");
  viewed.runs = 1 + static_cast<int>(options.checkpoints.size());
  viewed.quiet = options.common.quiet;
  if (!options.common.quiet)
    viewed.on_plan = [](const std::string& plan) { fmt::print(stderr, "{}\n", plan); };
  const ViewerExportOptions exported{
      .queries = read_positions(options.queries, std::ssize(viewed.ids), "--queries"),
      .budget = parse_bytes(options.budget, "--budget")};
  const auto tokens = std::ssize(viewed.ids);
  Viewer viewer(std::move(viewed));
  viewer.add_run(options.model.name, std::make_shared<Model>(options.model.load(folder, tokens)));
  for (const auto& name : options.checkpoints) {
    auto other = options.model;
    other.name = name;
    viewer.add_run(name,
                   std::make_shared<Model>(other.load(other.fetch(options.common.quiet), tokens)));
  }
  if (options.export_file.empty()) return serve(viewer, options);
  const auto bytes = viewer.write_page(options.export_file, exported);
  if (!options.common.quiet) fmt::print("{} in {}\n", format_bytes(bytes), options.export_file);
}

void add_server_options(CLI::App& command, ViewArguments& options) {
  start_section(command, "Server");
  command
      .add_option("--host", options.host,
                  "Address to listen on; others than 127.0.0.1 are open to the network")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command.add_option("--port", options.port, "Port to listen on (default: any free port)")
      ->check(integer_between(0, 65535));
  command.add_flag("--no-open", options.no_open, "Print the address, but do not open a browser");
}

void add_export_options(CLI::App& command, ViewArguments& options) {
  start_section(command, "Export");
  command
      .add_option("--export", options.export_file,
                  "Write the page as one HTML file instead of serving it")
      ->type_name("FILE");
  command
      .add_option(
          "--queries", options.queries,
          "Queries whose rows the file holds: 5, 0,3,7 or 0:128 (default: evenly spaced ones)")
      ->type_name("POSITIONS");
  command.add_option("--budget", options.budget, "Largest size of the file, as in 30MB")
      ->type_name("SIZE")
      ->capture_default_str();
}

}  // namespace

void add_view(CLI::App& app) {
  auto [command, options] = add_command<ViewArguments>(
      app, "view", "Look at the attention of every head over one text, in the browser", run);
  options->model.add_to(*command);
  command->get_option("--model")->required(false);  // a capture names its model
  command
      ->add_option(
          "--checkpoint", options->checkpoints,
          "A further checkpoint over the same text, for the slider of the page; repeatable")
      ->type_name("MODEL")
      ->allow_extra_args(false);
  auto& input = options->input.add_to(*command);
  input.add_option("--dataset", options->dataset, "A dataset, of which --row is the text");
  input
      .add_option("--capture", options->capture,
                  "A capture, of which --row is the text; its model and captured heads")
      ->type_name("FOLDER");
  start_section(*command, "Texts");
  command
      ->add_option("--row", options->row, "Row of the dataset, or example of the capture, from 0")
      ->check(not_negative())
      ->capture_default_str();
  command->add_option("--text-column", options->text_column, "Column of the dataset with the text")
      ->capture_default_str();
  start_section(*command, "View");
  command->add_option(
      "--heads", options->heads,
      "Heads to show first, up to four, as in 3.1,5.0; an exported file holds these");
  command->add_option("--query", options->query, "Query to show first (default: the last token)")
      ->check(not_negative());
  command
      ->add_option("--results", options->results,
                   "Results of 'qkscope analyze', to colour the map of heads, and of "
                   "attribution.csv")
      ->type_name("FOLDER");
  command
      ->add_option("--memory", options->memory,
                   "Host memory for queries and keys, as in 4GiB (default: three quarters of "
                   "the free memory); layers that do not fit are recomputed")
      ->type_name("SIZE");
  add_server_options(*command, *options);
  add_export_options(*command, *options);
}

}  // namespace qkscope::cli
