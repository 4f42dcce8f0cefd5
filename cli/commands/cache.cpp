// qkscope cache: what the cache of the Hugging Face Hub holds, and removing parts of it.
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/json.h"
#include "qkscope/experimental/text.h"
#include "qkscope/hub.h"

namespace qkscope::cli {
namespace {

struct CacheArguments {
  CommonOptions common;
  std::string id;
  std::string revision;
  bool dataset = false;
  bool weights = false;
  bool json = false;
};

std::string kind_name(RepositoryKind kind) {
  return kind == RepositoryKind::model ? "model" : "dataset";
}

// "main, v2 (0123456)", or the commit alone.
std::string revision_name(const CachedRevision& revision) {
  const auto commit = revision.commit.substr(0, 12);
  return revision.refs.empty() ? commit
                               : fmt::format("{} ({})", fmt::join(revision.refs, ", "), commit);
}

Json to_json(const CacheListing& listing) {
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

void print_text(const CacheListing& listing) {
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

void list(const CacheArguments& options) {
  options.common.apply();
  const auto listing = list_cache();
  if (options.json)
    fmt::print("{}\n", to_json(listing).dump(2, ' ', false, Json::error_handler_t::replace));
  else
    print_text(listing);
}

std::uint64_t remove_chosen(const CacheArguments& options) {
  const RepositoryName repository{options.dataset ? RepositoryKind::dataset : RepositoryKind::model,
                                  options.id};
  if (options.weights) return evict_weights(options.id, options.revision);
  return options.revision.empty() ? remove_repository(repository)
                                  : remove_revision(repository, options.revision);
}

void remove(const CacheArguments& options) {
  options.common.apply();
  const auto bytes = remove_chosen(options);
  if (!options.common.quiet) fmt::print("{} freed\n", format_bytes(bytes));
}

void add_remove(CLI::App& cache) {
  auto options = std::make_shared<CacheArguments>();
  auto* command =
      cache.add_subcommand("remove", "Remove a model or dataset, or one revision of it");
  command->add_option("id", options->id, "org/name of the model or dataset")->required();
  command->add_option("--revision", options->revision,
                      "Remove only this branch, tag or commit; files that others share stay");
  auto* dataset = command->add_flag("--dataset", options->dataset, "It is a dataset");
  command
      ->add_flag("--weights", options->weights,
                 "Remove only the weights of a revision (default: main)")
      ->excludes(dataset);
  options->common.add_to(*command);
  command->callback([options] { remove(*options); });
}

}  // namespace

void add_cache(CLI::App& app) {
  auto options = std::make_shared<CacheArguments>();
  auto* command = app.add_subcommand(
      "cache", "List what the cache of the Hugging Face Hub holds, or remove it");
  command->add_flag("--json", options->json, "Print one JSON object");
  options->common.add_to(*command);
  command->require_subcommand(0, 1);
  add_remove(*command);
  command->callback([options, command] {
    if (command->get_subcommands().empty()) list(*options);
  });
}

}  // namespace qkscope::cli
