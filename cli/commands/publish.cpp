// qkscope publish: a finished capture to a branch of a dataset on the Hugging Face Hub.
#include <memory>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/publishing.h"

namespace qkscope::cli {
namespace {

struct PublishArguments {
  CommonOptions common;
  std::string data_root;
  PublishOptions publish;
};

void run(PublishArguments& options) {
  options.common.apply();
  options.publish.quiet = options.common.quiet;
  publish_and_report(options.data_root, options.publish);
}

}  // namespace

void add_publish(CLI::App& app) {
  auto options = std::make_shared<PublishArguments>();
  auto* command = app.add_subcommand("publish", "Put a finished capture on the Hugging Face Hub");
  command->add_option("data_root", options->data_root, "Folder or address of the capture")
      ->required();
  command->add_option("--repo", options->publish.repo,
                      "Dataset repository, org/name (default: the configuration's)");
  command->add_option("--branch", options->publish.branch,
                      "Branch (default: the configuration's, or main)");
  command->add_flag("--private", options->publish.private_repo,
                    "A repository that is made is private");
  options->common.add_to(*command);
  command->callback([options] { run(*options); });
}

}  // namespace qkscope::cli
