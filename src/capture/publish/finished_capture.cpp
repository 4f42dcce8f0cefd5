#include "capture/publish/finished_capture.h"

#include <algorithm>
#include <set>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "capture/format/data_root.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "input/texts/dataset_files.h"
#include "qkscope/captures.h"

namespace qkscope {
namespace {

Json load_state(const DataRoot& root) {
  if (!is_folder(root.path())) bad_input("{}: no such folder; expected a capture", root.path());
  root.refuse_links();  // a link could publish a file from outside the data root
  if (!root.shards().empty())
    bad_input(
        "{}: the capture is not finished: parts of it are in {}; run the capture again to finish "
        "it, or 'qkscope merge' when it ran in shards",
        root.path(), root.parts());
  if (!root.finished())
    bad_input("{}: holds no finished capture: there is no {}; run the capture to its end",
              root.path(), layout::kStateFile);
  Json state = load_json(root.state_file());
  if (!state.is_object() || !state.contains(metadata::kStateConfigurationHash) ||
      !state[metadata::kStateConfigurationHash].is_string())
    bad_input("{}: the capture was made by another program: {} has no configuration_hash",
              root.path(), layout::kStateFile);
  return state;
}

// Names of the head folders that the dataset card lists.
std::set<std::string> heads_of_card(const std::string& data_root) {
  const auto path = data_root + "/" + layout::kCardFile;
  const MappedFile file(path);
  std::set<std::string> names;
  for (const auto& config : read_card_configs(file.text(), path)) names.insert(config.name);
  return names;
}

void check_heads(const std::string& data_root, const CaptureIndex& index, const std::string& hash) {
  auto expected = heads_of_card(data_root);
  for (const auto* heads : {&index.queries, &index.keys}) {
    for (const auto& head : *heads) {
      if (expected.erase(folder_name(head)) == 0)
        bad_input(
            "{}: the card does not name {}: files of another capture lie there too; remove "
            "them, or capture into a folder of its own",
            data_root, folder_name(head));
      const auto path = head_file_path(data_root, head);
      const auto metadata = read_head_metadata(path);
      const auto found = metadata.find(metadata::kConfigHash);
      if (found == metadata.end() || found->second != hash)
        bad_input("{}: belongs to another run (configuration {}, expected {})", path,
                  found == metadata.end() ? "unknown" : found->second, hash);
    }
  }
  if (!expected.empty())
    bad_input("{}: {} head files that the card names are missing, {} first", data_root,
              expected.size(), *expected.begin());
}

}  // namespace

FinishedCapture check_finished_capture(const std::string& data_root) {
  const auto state = load_state(DataRoot(data_root));
  const auto index = index_capture(data_root);
  check_heads(data_root, index, state[metadata::kStateConfigurationHash].get<std::string>());
  FinishedCapture capture;
  capture.model = index.model;
  for (const auto* heads : {&index.queries, &index.keys})
    for (const auto& head : *heads)
      capture.files.push_back(folder_name(head) + "/" + layout::kHeadFile);
  for (const char* name : {layout::kCardFile, layout::kStateFile, layout::kExamplesFile}) {
    if (!path_exists(data_root + "/" + name))
      bad_input("{}/{}: is missing; capture again with --overwrite", data_root, name);
    capture.files.emplace_back(name);
  }
  std::sort(capture.files.begin(), capture.files.end());
  for (const auto& name : names_in(data_root))
    if (std::none_of(capture.files.begin(), capture.files.end(), [&](const std::string& file) {
          return file == name || file.starts_with(name + "/");
        }))
      capture.others.push_back(name);
  if (const auto wish = state.find(metadata::kStatePublish);
      wish != state.end() && wish->is_object()) {
    capture.repo = wish->value("repo", "");
    capture.branch = wish->value("branch", "");
    capture.private_repo = wish->value("private", false);
  }
  return capture;
}

}  // namespace qkscope
