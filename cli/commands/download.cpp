// qkscope download: models and datasets of the Hugging Face Hub into its cache.
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "qkscope/hub.h"

namespace qkscope::cli {
namespace {

struct DownloadArguments {
  CommonOptions common;
  std::string id;
  std::string revision;
  std::string name;
  std::string split = "train";
  bool dataset = false;
  bool no_weights = false;
};

std::string download(const DownloadArguments& options) {
  FetchOptions fetch;
  fetch.weights = !options.no_weights;
  fetch.refresh = true;
  fetch.quiet = options.common.quiet;
  if (!options.dataset) return fetch_checkpoint(options.id, options.revision, fetch);
  if (!options.revision.empty()) bad_input("--revision: datasets are taken from their main branch");
  return fetch_dataset(options.id, options.name, options.split, fetch);
}

void run(const DownloadArguments& options) {
  options.common.apply();
  fmt::print("{}\n", download(options));
}

}  // namespace

void add_download(CLI::App& app) {
  auto options = std::make_shared<DownloadArguments>();
  auto* command = app.add_subcommand(
      "download", "Fetch a model or dataset of the Hugging Face Hub into its cache");
  command->add_option("id", options->id, "org/name of the model or dataset")->required();
  command->add_option("--revision", options->revision, "Branch, tag or commit (default: main)");
  command->add_flag("--no-weights", options->no_weights, "Only configuration and tokenizer");
  auto* dataset = command->add_flag("--dataset", options->dataset, "It is a dataset");
  command->add_option("--split", options->split, "Of a dataset: the split")
      ->capture_default_str()
      ->needs(dataset);
  command->add_option("--name", options->name, "Of a dataset: the configuration")->needs(dataset);
  command->footer("Prints the folder. What is there already is not fetched again.");
  options->common.add_to(*command);
  command->callback([options] { run(*options); });
}

}  // namespace qkscope::cli
