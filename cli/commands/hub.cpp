// qkscope hub: manages downloads, the local cache, checkpoint branches and publishing on the
// Hugging Face Hub.
#include "qkscope/hub.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/json.h"
#include "cli/publishing.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

// ---- qkscope hub download

struct DownloadArguments {
  CommonOptions common;
  std::string id;
  std::string revision;
  std::string name;
  std::string split;
  bool dataset = false;
  std::string only;
};

// Splits org/name@revision.
void split_revision(DownloadArguments& options) {
  const auto at = options.id.find('@');
  if (at == std::string::npos) return;
  if (!options.revision.empty())
    reject("{}: names a revision, and --revision {} another", options.id, options.revision);
  options.revision = options.id.substr(at + 1);
  options.id.resize(at);
}

void download(DownloadArguments& options) {
  split_revision(options);
  FetchOptions fetch;
  fetch.weights = options.only.empty();
  fetch.refresh = true;
  fetch.quiet = options.common.quiet;
  fmt::print("{}\n", options.dataset ? fetch_dataset_revision(options.id, options.revision,
                                                              options.name, options.split, fetch)
                                     : fetch_checkpoint(options.id, options.revision, fetch));
}

void add_download(CLI::App& hub) {
  auto [command, options] = add_command<DownloadArguments>(
      hub, "download", "Download a model or dataset into the cache", download);
  command->add_option("id", options->id, "org/name of the model or dataset, or org/name@revision")
      ->required();
  command->add_option("--revision", options->revision, "Branch, tag or commit (default: main)");
  choices(command->add_option("--only", options->only,
                              "config: configuration and tokenizer, no weights (default: all)"),
          {"config"});
  auto* dataset = command->add_flag("--dataset", options->dataset, "The id names a dataset");
  command
      ->add_option("--split", options->split,
                   "With --dataset: split (default: all files of a capture, else train)")
      ->needs(dataset);
  command->add_option("--name", options->name, "With --dataset: configuration (default: none)")
      ->needs(dataset);
  command->footer("Prints the folder. Files that are in the cache are not downloaded again.");
}

// ---- qkscope hub publish

struct PublishArguments {
  CommonOptions common;
  std::string data_root;
  PublishOptions publish;
};

void add_publish(CLI::App& hub) {
  auto [command, options] = add_command<PublishArguments>(
      hub, "publish", "Upload a finished capture to a dataset's branch",
      [](PublishArguments& chosen) {
        chosen.publish.quiet = chosen.common.quiet;
        publish_and_report(chosen.data_root, chosen.publish);
      });
  command->add_option("data_root", options->data_root, "Folder or address of the capture")
      ->required();
  command->add_option("--repo", options->publish.repo,
                      "Dataset repository, org/name (default: the configuration's)");
  command->add_option("--branch", options->publish.branch,
                      "Branch (default: the configuration's, or main)");
  command->add_flag("--private", options->publish.private_repo,
                    "Create the repository as private if it does not exist");
}

// ---- Commands qkscope hub cache and qkscope hub remove

struct CacheArguments {
  CommonOptions common;
  std::string id;
  std::string revision;
  bool dataset = false;
  std::string only;
  bool json = false;
};

std::string kind_name(RepositoryKind kind) {
  return kind == RepositoryKind::model ? "model" : "dataset";
}

// Formats the refs and the commit of a cached revision: "main, v2 (0123456)", or only the commit if
// the revision has no refs.
std::string revision_name(const CachedRevision& revision) {
  const auto commit = revision.commit.substr(0, 12);
  return revision.refs.empty() ? commit
                               : fmt::format("{} ({})", fmt::join(revision.refs, ", "), commit);
}

Json cache_json(const CacheListing& listing) {
  Json list = Json::array();
  for (const auto& entry : listing.entries) {
    Json revisions = Json::array();
    for (const auto& revision : entry.revisions)
      revisions.push_back({{"commit", revision.commit},
                           {"refs", revision.refs},
                           {"bytes", revision.bytes},
                           {"files", revision.files}});
    list.push_back({{"kind", kind_name(entry.repository.kind)},
                    {"id", entry.repository.id},
                    {"folder", entry.folder},
                    {"bytes", entry.bytes},
                    {"incomplete_bytes", entry.incomplete_bytes},
                    {"revisions", revisions}});
  }
  return {{"cache", listing.folder}, {"repositories", list}};
}

void print_cache(const CacheListing& listing) {
  std::uint64_t total = 0;
  for (const auto& entry : listing.entries) {
    total += entry.bytes;
    fmt::print("{:<8}{:<48}{:>12}{}\n", kind_name(entry.repository.kind),
               printable(entry.repository.id), format_bytes(entry.bytes),
               entry.incomplete_bytes == 0
                   ? ""
                   : fmt::format("  ({} incomplete)", format_bytes(entry.incomplete_bytes)));
    for (const auto& revision : entry.revisions)
      fmt::print("        {:<48}{:>12}  {} files\n", printable(revision_name(revision)),
                 format_bytes(revision.bytes), revision.files);
  }
  fmt::print("{} in {}\n", format_bytes(total), listing.folder);
}

void print_cache(CacheArguments& options) {
  const auto listing = list_cache();
  if (options.json)
    fmt::print("{}\n", dump_json(cache_json(listing), 2));
  else
    print_cache(listing);
}

void add_cache(CLI::App& hub) {
  auto [command, options] =
      add_command<CacheArguments>(hub, "cache", "List the local cache and its sizes", print_cache);
  command->add_flag("--json", options->json, "Print one JSON object");
}

void remove_from_cache(CacheArguments& options) {
  const RepositoryName repository{options.dataset ? RepositoryKind::dataset : RepositoryKind::model,
                                  options.id};
  const auto freed = !options.only.empty()      ? evict_weights(options.id, options.revision)
                     : options.revision.empty() ? remove_repository(repository)
                                                : remove_revision(repository, options.revision);
  if (!options.common.quiet) fmt::print("{} freed\n", format_bytes(freed));
}

void add_remove(CLI::App& hub) {
  auto [command, options] = add_command<CacheArguments>(
      hub, "remove", "Remove a model, a dataset or one revision from the cache", remove_from_cache);
  command->add_option("id", options->id, "org/name of the model or dataset")->required();
  command->add_option("--revision", options->revision,
                      "Remove only this branch, tag or commit; shared files stay (default: all)");
  auto* dataset = command->add_flag("--dataset", options->dataset, "The id names a dataset");
  choices(command->add_option("--only", options->only,
                              "weights: remove only the weights of a revision (default: all "
                              "files)"),
          {"weights"})
      ->excludes(dataset);
}

}  // namespace

void add_hub(CLI::App& app) {
  auto* hub =
      app.add_subcommand("hub", "Hugging Face Hub: download, branches, cache, remove, publish");
  hub->require_subcommand(1);
  add_download(*hub);
  add_branches(*hub);
  add_cache(*hub);
  add_remove(*hub);
  add_publish(*hub);
}

}  // namespace qkscope::cli
