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
  std::string split;
  bool dataset = false;
  bool no_weights = false;
};

std::string download(const DownloadArguments& options) {
  FetchOptions fetch;
  fetch.weights = !options.no_weights;
  fetch.refresh = true;
  fetch.quiet = options.common.quiet;
  if (!options.dataset) return fetch_checkpoint(options.id, options.revision, fetch);
  return fetch_dataset_revision(options.id, options.revision, options.name, options.split, fetch);
}

// REPO@BRANCH, as captures are named elsewhere.
void split_revision(DownloadArguments& options) {
  const auto at = options.id.find('@');
  if (at == std::string::npos) return;
  if (!options.revision.empty())
    bad_input("{}: names a revision, and --revision {} another", options.id, options.revision);
  options.revision = options.id.substr(at + 1);
  options.id.resize(at);
}

void run(DownloadArguments& options) {
  options.common.apply();
  split_revision(options);
  fmt::print("{}\n", download(options));
}

}  // namespace

void add_download(CLI::App& app) {
  auto options = std::make_shared<DownloadArguments>();
  auto* command = app.add_subcommand(
      "download", "Fetch a model or dataset of the Hugging Face Hub into its cache");
  command->add_option("id", options->id, "org/name of the model or dataset, or org/name@revision")
      ->required();
  command->add_option("--revision", options->revision, "Branch, tag or commit (default: main)");
  command->add_flag("--no-weights", options->no_weights, "Only configuration and tokenizer");
  auto* dataset = command->add_flag("--dataset", options->dataset, "It is a dataset");
  command
      ->add_option("--split", options->split,
                   "Of a dataset: the split (default: the whole of a capture, else train)")
      ->needs(dataset);
  command->add_option("--name", options->name, "Of a dataset: the configuration")->needs(dataset);
  command->footer("Prints the folder. What is there already is not fetched again.");
  options->common.add_to(*command);
  command->callback([options] { run(*options); });
}

}  // namespace qkscope::cli
