// qkscope hub branches: lists the checkpoints that a repository keeps as branches, and writes a
// sweep file for them.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/logging.h"
#include "qkscope/experimental/study.h"
#include "qkscope/experimental/text.h"
#include "qkscope/hub.h"

namespace qkscope::cli {
namespace {

struct BranchesArguments {
  CommonOptions common;
  std::string repository;
  BranchChoice choice;
  std::string sweep_file;
  std::string config;
  bool dataset = false;
  bool overwrite = false;
};

void check(const BranchesArguments& options) {
  if (options.sweep_file.empty()) return;
  if (options.dataset) reject("--write-sweep: a dataset has no checkpoints");
  if (options.config.empty())
    reject("--write-sweep: expected --config FILE, the capture configuration of its runs");
  std::error_code ignored;
  if (!options.overwrite && std::filesystem::exists(options.sweep_file, ignored))
    reject("{}: is there already; --overwrite replaces it", options.sweep_file);
}

void print(const std::vector<CheckpointBranch>& branches) {
  std::size_t label = 5;
  std::size_t phase = 5;
  for (const auto& branch : branches) {
    label = std::max(label, branch.label.size());
    phase = std::max(phase, printable(branch.phase).size());
  }
  fmt::print("{:<{}}  {:<{}}  {:>10}  {}\n", "label", label, "phase", phase, "step", "branch");
  for (const auto& branch : branches)
    fmt::print("{:<{}}  {:<{}}  {:>10}  {}\n", branch.label, label, printable(branch.phase), phase,
               branch.step ? fmt::format("{}", *branch.step) : "-", printable(branch.branch));
}

void run(BranchesArguments& options) {
  check(options);
  const auto kind = options.dataset ? RepositoryKind::dataset : RepositoryKind::model;
  const auto names = list_branches({kind, options.repository});
  const auto chosen = checkpoint_branches(names, options.choice);
  if (chosen.empty())
    reject("{}: none of its {} branches {}", options.repository, names.size(),
           options.choice.match.empty() ? "tells a step in its name; --match '*' takes all"
                                        : "matches");
  print(chosen);
  info("{} of {} branches{}", chosen.size(), names.size(),
       options.choice.match.empty() ? "; those without a step in their name need --match" : "");
  if (options.sweep_file.empty()) return;
  write_branch_sweep({options.repository, options.config, chosen}, options.sweep_file);
  info("{}: a sweep over {} checkpoints", options.sweep_file, chosen.size());
}

}  // namespace

void add_branches(CLI::App& hub) {
  auto [command, options] = add_command<BranchesArguments>(
      hub, "branches", "List a repository's checkpoint branches, and write a sweep file over them",
      run);
  auto& choice = options->choice;
  command->add_option("repository", options->repository, "org/name on the Hugging Face Hub")
      ->required();
  command
      ->add_option("--match", choice.match,
                   "Only branches that match this pattern: 'stage1-*'; repeatable (default: those "
                   "whose name contains a step)")
      ->allow_extra_args(false);
  auto* every =
      command->add_option("--every", choice.every, "Every N-th branch, and the last (default: all)")
          ->check(positive());
  command
      ->add_option("--log", choice.log,
                   "At most N of each phase, evenly in the logarithm of the step (default: all)")
      ->check(positive())
      ->excludes(every);
  auto* write = command->add_option("--write-sweep", options->sweep_file,
                                    "Write a sweep file over the branches (default: list them)");
  command
      ->add_option("--config", options->config,
                   "Capture configuration of the runs; repository and branch replace its model")
      ->needs(write);
  command->add_flag("--overwrite", options->overwrite, "Replace an existing sweep file")
      ->needs(write);
  command->add_flag("--dataset", options->dataset, "The repository is a dataset");
  command->footer(
      "Phase and label come from the name: stage1-step-40000 is S1-40K of phase stage1; phases "
      "that begin with lc are LC1, LC2, ...");
}

}  // namespace qkscope::cli
