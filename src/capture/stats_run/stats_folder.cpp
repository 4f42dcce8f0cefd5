#include "capture/stats_run/stats_folder.h"

#include "base/core/error.h"
#include "base/io/folder.h"
#include "base/io/open_folder.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "capture/stats_format/stats_file.h"

namespace qkscope {
namespace {

constexpr std::int64_t kRowGroup = 4096;

// Every name at the top of a finished folder; the state file first: what is left does not look
// whole.
constexpr const char* kFiles[] = {stats_layout::kStateFile,     stats_layout::kSumsFile,
                                  stats_layout::kChannelsFile,  stats_layout::kAttentionFile,
                                  stats_layout::kDocumentsFile, stats_layout::kDistanceFile,
                                  stats_layout::kRetrievalFile, layout::kExamplesFile};

}  // namespace

StatsFolder::StatsFolder(const std::string& path) : root_(path) {}

std::string StatsFolder::state_file() const {
  return root_.path() + "/" + stats_layout::kStateFile;
}

bool StatsFolder::finished() const {
  return path_exists(state_file());
}

bool StatsFolder::holds(const Json& effective) const {
  if (!finished()) return false;
  const auto state = load_json(state_file());
  return state.is_object() &&
         has_configuration(state.value(metadata::kStateConfiguration, Json()), effective);
}

void StatsFolder::check_finished(const Json& identity) const {
  const auto state = load_json(state_file());
  if (!state.is_object() || !state.value(metadata::kStateConfiguration, Json()).is_object())
    bad_input("{}: says nothing about the run that made it; replace it with --overwrite",
              state_file());
  const auto difference = identity_difference(state[metadata::kStateConfiguration], identity);
  if (!difference.empty())
    bad_input(
        "{}: holds statistics of another run: {}; choose another output.data_root, or replace them "
        "with --overwrite",
        root_.path(), difference);
}

void StatsFolder::refuse_capture() const {
  if (root_.finished())
    bad_input(
        "{}: holds a capture; statistics need a folder of their own: --set output.data_root=DIR",
        root_.path());
}

void StatsFolder::remove_statistics(const Manifest& manifest, const Shard& shard) const {
  const OpenFolder folder(root_.path());
  for (const auto* name : kFiles) {
    folder.remove_file(name);
    if (name == kFiles[0]) folder.sync();
  }
  folder.remove_tree(stats_layout::kColumnsFolder);
  root_.remove_capture(manifest, shard);
}

void StatsFolder::remove_left_parts() const {
  if (!finished() || !path_exists(root_.parts())) return;
  const auto lock = root_.lock_whole();
  root_.remove_parts();
}

void StatsFolder::publish(const Statistics& statistics, DocumentSource& documents,
                          const std::function<void(ExamplesWriter&)>& add_examples) const {
  OpenFolder(root_.parts()).remove_tree(layout::kFinalFolder);
  make_folders(root_.final_folder());
  ExamplesWriter writer(root_.final_folder() + "/" + layout::kExamplesFile, kRowGroup);
  add_examples(writer);
  writer.finish();
  write_statistics(root_.final_folder(), statistics, documents);
  const OpenFolder to(root_.path());
  const auto from = to.folder(layout::kPartsFolder).folder(layout::kFinalFolder);
  to.remove_tree(stats_layout::kColumnsFolder);
  for (const auto& name : from.names())
    if (name != stats_layout::kStateFile) from.move(name, to);
  to.sync();
  from.move(stats_layout::kStateFile, to);
  to.sync();
  root_.remove_parts();
}

}  // namespace qkscope
