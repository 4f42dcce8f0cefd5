// Implements publish_capture() from qkscope/hub.h: publishes a capture as a branch of a dataset.
#include <algorithm>
#include <filesystem>
#include <functional>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "capture/format/capture_source.h"
#include "capture/format/data_root.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "capture/publish/dataset_repository.h"
#include "input/checkpoint/hub_cache.h"
#include "input/hub/http.h"
#include "qkscope/captures.h"
#include "qkscope/hub.h"

namespace qkscope {

// Dataset card of the main branch (main_card.md), embedded by CMake.
namespace embedded {
extern const char main_card[];
}

namespace {

namespace fs = std::filesystem;

constexpr int kMostConflicts = 4;

bool has_same_content(const FileToPublish& local, const RemoteFile& remote) {
  if (local.size != remote.size) return false;
  return remote.sha256.empty() ? git_sha1_of_file(local.source) == remote.git_sha1
                               : local.sha256 == remote.sha256;
}

// Modification time of each file, to detect changes during the upload.
std::vector<fs::file_time_type> modification_times(const std::string& data_root,
                                                   const std::vector<std::string>& paths) {
  std::vector<fs::file_time_type> times;
  for (const auto& path : paths) {
    std::error_code error;  // a removed file gets the minimal time, which counts as a change
    times.push_back(fs::last_write_time(fs::path(data_root) / path, error));
  }
  return times;
}

// ---- Checks before publishing: the capture is finished and all its files belong to one run ----

struct FinishedCapture {
  std::string model;
  std::vector<std::string> files;   // relative to the data root, sorted
  std::vector<std::string> others;  // other names in the data root, which are not published
  // Destination from the run's configuration; "" if not configured.
  std::string repo;
  std::string branch;
  bool private_repo = false;
};

// Throws a bad-input error if the capture is not finished, if a head file is missing or belongs to
// another run, or if another program wrote the capture.
FinishedCapture check_finished_capture(const std::string& data_root) {
  const DataRoot root(data_root);
  if (!is_folder(root.path())) reject("{}: no such folder; expected a capture", root.path());
  root.check_no_symbolic_links();  // a link could publish a file from outside the data root
  if (!root.list_started_shards().empty())
    reject(
        "{}: the capture is not finished: parts of it are in {}; run the capture again to finish "
        "it, or 'qkscope merge' when it ran in shards",
        root.path(), root.parts_folder());
  if (!root.is_finished())
    reject("{}: holds no finished capture: there is no {}; run the capture to its end", root.path(),
           layout::kStateFile);
  const Json state = load_json(root.state_file());
  if (!state.is_object() || !state.contains(metadata::kStateConfigurationHash) ||
      !state[metadata::kStateConfigurationHash].is_string())
    reject("{}: the capture was made by another program: {} has no configuration_hash", root.path(),
           layout::kStateFile);
  const auto index = index_capture(data_root);
  FinishedCapture capture;
  capture.model = index.model;
  for (const auto* heads : {&index.queries, &index.keys})
    for (const auto& head : *heads) {
      check_head_metadata(index, head, read_head_metadata(head_file_path(data_root, head)));
      capture.files.push_back(head_folder_name(head) + "/" + layout::kHeadFile);
    }
  for (const char* name : {layout::kCardFile, layout::kStateFile, layout::kExamplesFile}) {
    if (!path_exists(data_root + "/" + name))
      reject("{}/{}: is missing; capture again with --overwrite", data_root, name);
    capture.files.emplace_back(name);
  }
  std::ranges::sort(capture.files);
  for (const auto& name : entry_names(data_root))
    if (std::ranges::none_of(capture.files, [&](const std::string& file) {
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

// ---- Upload ----

class CapturePublisher {
 public:
  CapturePublisher(const HubClient& client, std::string data_root, PublishOptions options)
      : client_(client),
        data_root_(std::move(data_root)),
        options_(std::move(options)),
        repository_{{RepositoryKind::dataset, options_.repo}} {}

  PublishResult publish(const FinishedCapture& capture) {
    const auto times = modification_times(data_root_, capture.files);
    const auto files = parallel_map(capture.files, [&](const std::string& path) {
      const auto source = data_root_ + "/" + path;
      return FileToPublish{path, source, fs::file_size(source), sha256_of_file(source)};
    });
    ensure_repository(client_, repository_, options_.private_repo);
    if (options_.branch != "main") {
      commit_with_retries("main", [&] {  // the card that explains the branches
        HubCommit commit;
        commit.message = "Say what the branches hold";
        commit.parent = fetch_commit(client_, repository_, "main");
        if (find_remote_file(fetch_tree(client_, repository_, commit.parent), layout::kCardFile) ==
            nullptr)
          commit.texts[layout::kCardFile] =
              fmt::format(fmt::runtime(embedded::main_card), fmt::arg("repo", repository_.id));
        return commit;
      });
      ensure_branch(hub_branch(options_.branch));
    }
    PublishResult result;
    result.address =
        client_.make_url(fmt::format("{}/tree/{}", repository_.web_path(), options_.branch))
            .to_string();
    commit_with_retries(options_.branch, [&] {
      auto commit = pending_changes(files, result);
      if (commit.empty()) return commit;
      fetch_upload_modes(hub_branch(options_.branch), commit.files);
      std::vector<FileToPublish> large;
      std::ranges::copy_if(commit.files, std::back_inserter(large), &FileToPublish::large);
      if (!large.empty()) upload_large_files(hub_branch(options_.branch), large, options_.quiet);
      if (modification_times(data_root_, capture.files) != times)
        throw_failure("{}: files changed while they were published; publish again", data_root_);
      commit.message = fmt::format("Query and key vectors of {}", capture.model);
      return commit;
    });
    return result;
  }

 private:
  HubBranch hub_branch(const std::string& name) const { return {client_, repository_, name}; }

  // Sends the commits returned by `next` until it returns an empty one. If a response is lost,
  // `next` reads the branch to find out whether the commit was accepted.
  void commit_with_retries(const std::string& branch,
                           const std::function<HubCommit()>& next) const {
    Backoff backoff(client_.settings(), client_.stop_flag());
    for (int conflicts = 0; conflicts < kMostConflicts;) {
      const auto commit = next();
      if (commit.empty()) return;
      const auto response = send_commit(hub_branch(branch), commit);
      if (response.ok()) return;
      log::debug("the commit is not confirmed; looking at the branch");
      if (is_retryable(response) && !backoff.wait_before_retry(response)) {
        if (response.status == 0)
          throw_connection_error(response, client_.make_url(repository_.web_path()));
        throw_response_error(client_, response, repository_, RepositoryAccess::write);
      }
      if (!is_retryable(response)) ++conflicts;
    }
    throw_failure("{}: someone else keeps committing to the branch {}; publish again later",
                  repository_.id, branch);
  }

  // Returns a commit that makes this capture the only one on the branch. Other files are kept.
  HubCommit pending_changes(const std::vector<FileToPublish>& files, PublishResult& result) const {
    HubCommit commit;
    commit.parent = fetch_commit(client_, repository_, options_.branch);
    const auto tree = fetch_tree(client_, repository_, commit.parent);
    for (const auto& file : files) {
      const auto* there = find_remote_file(tree, file.path);
      if (there == nullptr || !has_same_content(file, *there)) commit.files.push_back(file);
    }
    for (const auto& remote : tree)
      if (is_capture_file(remote.path) &&
          std::ranges::none_of(files,
                               [&](const FileToPublish& file) { return file.path == remote.path; }))
        commit.removed.push_back(remote.path);
    result.sent = std::max(result.sent, commit.files.size());
    result.removed = std::max(result.removed, commit.removed.size());
    result.unchanged = files.size() - result.sent;
    return commit;
  }

  const HubClient& client_;
  std::string data_root_;
  PublishOptions options_;
  Repository repository_;
};

}  // namespace

PublishResult publish_capture(const std::string& data_root, const PublishOptions& asked) {
  return translate_exceptions([&] {
    const auto capture = check_finished_capture(data_root);
    auto options = asked;  // missing options come from the capture's configuration
    if (options.repo.empty()) {
      options.repo = capture.repo;
      options.private_repo = options.private_repo || capture.private_repo;
      if (options.branch.empty()) options.branch = capture.branch;
    }
    if (options.repo.empty())
      reject(
          "{}: where to? The capture's configuration has no output.hf_repo_id; give --repo "
          "org/name",
          data_root);
    if (options.branch.empty()) options.branch = "main";
    if (!is_repository_id(options.repo))
      reject("{}: not the name of a repository, which is 'org/name'", quote_text(options.repo));
    if (!is_valid_revision(options.branch))
      reject("{}: not the name of a branch", quote_text(options.branch));
    const HubClient client(hub_settings());
    if (client.settings().offline)
      reject("HF_HUB_OFFLINE is set: nothing can be published; unset it and publish again");
    if (client.settings().token.empty())
      reject(
          "no token to publish with: set HF_TOKEN to one that may write, or log in with 'hf auth "
          "login'");
    if (!capture.others.empty())
      log::info("{}: not part of the capture and not published: {}", data_root,
                fmt::join(capture.others, ", "));
    return CapturePublisher(client, data_root, options).publish(capture);
  });
}

bool can_publish() {
  return translate_exceptions([] {
    const auto settings = hub_settings();
    return !settings.offline && !settings.token.empty();
  });
}

}  // namespace qkscope
