#include "capture/writer/part_run.h"

#include <utility>

#include <fmt/format.h>

#include "base/core/clock.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "capture/format/stored_run.h"

namespace qkscope {
namespace {

// Logs cleanup errors; the original exception or outcome is the one to report.
template <typename Cleanup>
void run_cleanup_logging_errors(const Cleanup& cleanup) {
  try {
    cleanup();
  } catch (const Error& error) {
    log::warn("{}", error.what());
  }
}

void add_part_totals(ShardRunResult& result, const Journal& part) {
  result.examples += part.example_count();
  result.rows += part.row_count();
  result.tokens += part.token_count();
  result.non_finite += part.non_finite_row_count();
}

void assemble_and_publish(const DataRoot& root, std::vector<Journal> parts,
                          const PartAssembler& assemble, ShardRunResult& result) {
  const auto start = Clock::now();
  assemble(root, std::move(parts));
  log::debug("assembly, {:.3f} s: the files are written", seconds_since(start));
  root.move_final_files_to_root();
  result.assembly_seconds = seconds_since(start);
  log::debug("assembly, {:.3f} s: the files are published", result.assembly_seconds);
}

void check_any_part_exists(const DataRoot& root, const RunKind& kind) {
  if (root.list_started_shards().empty())
    reject("{}: there are no parts of {}; run 'qkscope {} --shard i/n' first", root.path(),
           kind.noun, kind.command);
}

// Opens the parts of all shards in order; they share one manifest object.
std::vector<Journal> open_complete_parts(const DataRoot& root, const RunKind& kind) {
  check_any_part_exists(root, kind);
  const auto count = root.list_started_shards().front().count;
  std::vector<Journal> parts;
  std::vector<std::string> missing;
  for (std::int64_t index = 0; index < count; ++index) {
    const Shard shard{index, count};
    if (!Journal::exists(root.part_folder(shard))) {
      missing.push_back(fmt::format("{}/{} (not started)", index, count));
      continue;
    }
    Journal part(root.part_folder(shard));
    if (!part.is_complete())
      missing.push_back(
          fmt::format("{}/{} (unfinished, {} {})", index, count, part.example_count(), kind.unit));
    if (!parts.empty() && missing.empty()) {
      const auto& first = parts.front();
      const auto difference = describe_manifest_difference(first.manifest(), part.manifest());
      if (!difference.empty())  // such as parts copied by hand
        reject("{}: {} and {} are not parts of one run: {}", root.path(), first.folder(),
               part.folder(), difference);
      part.share_manifest_of(first);
    }
    parts.push_back(std::move(part));
  }
  if (!missing.empty()) throw_missing_shards(root.path(), std::move(missing));
  return parts;
}

ShardRunResult merge_local_parts(const DataRoot& root, const RunKind& kind,
                                 const PartAssembler& assemble) {
  if (root.is_finished()) {  // parts are left where an earlier merge ended before it removed them
    root.remove_leftover_parts();
    return {.outcome = RunOutcome::already_finished};
  }
  check_any_part_exists(root, kind);  // before the lock creates a folder
  const auto lock = root.lock_whole_root();
  auto parts = open_complete_parts(root, kind);
  ShardRunResult result;
  for (const auto& part : parts) add_part_totals(result, part);
  assemble_and_publish(root, std::move(parts), assemble, result);
  return result;
}

}  // namespace

ShardRun::ShardRun(ShardRunOptions run, DeferOpenTag) : run_(std::move(run)) {}

// Delegates to another constructor, so that the destructor cleans up if open() throws.
ShardRun::ShardRun(ShardRunOptions run) : ShardRun(std::move(run), DeferOpenTag()) {
  open();
}

ShardRun::~ShardRun() {
  if (ended_) return;
  if (lock_) run_cleanup_logging_errors([&] { root_->remove_unused_part(run_.shard, *lock_); });
  if (stored_ != nullptr)
    run_cleanup_logging_errors([&] { stored_->remove_unused_run(run_.shard); });
}

void ShardRun::open() {
  const auto address = parse_store_uri(run_.data_root);
  if (!address) {
    root_.emplace(run_.data_root, run_.kind);
    return open_local_part();
  }
  if (run_.overwrite) run_.check_inputs();
  auto stored = std::make_unique<StoredRun>(*address, run_.kind.name);
  if (!run_.overwrite && stored->is_finished()) {
    stored->check_identity_of_finished_run(run_.manifest.identity, run_.kind.state_file);
    already_finished_ = true;
    return;
  }
  stored->begin_or_join_run(run_.manifest, run_.shard, run_.overwrite);
  stored_ = std::move(stored);
  root_.emplace(stored_->local_root(), run_.kind);
  // If the local run is finished, an earlier process ended before it could upload the files.
  if (!root_->is_finished()) open_local_part();
}

void ShardRun::open_local_part() {
  const bool replace = run_.overwrite && stored_ == nullptr;  // StoredRun replaces runs in a store
  if (root_->is_finished() && !replace) {
    root_->check_identity_of_finished_run(run_.manifest.identity);
    root_->remove_leftover_parts();
    already_finished_ = true;
    return;
  }
  lock_ = root_->lock(run_.shard);
  root_->check_no_foreign_files();
  if (replace) {
    run_.check_inputs();
    root_->remove_run_files(run_.manifest, run_.shard);
  } else if (root_->is_being_replaced()) {  // an earlier --overwrite ended too soon
    root_->remove_finished_files();
  }
  if (root_->is_finished()) {  // another process finished the run before this one got the lock
    root_->check_identity_of_finished_run(run_.manifest.identity);
    already_finished_ = true;
    return;
  }
  if (stored_ != nullptr) stored_->download_part(run_.shard);
  journal_ = root_->open_part(run_.manifest, run_.shard);
  journal_->remove_unlisted_files();
  if (stored_ != nullptr) stored_->upload_new_journal_lines(*journal_, run_.shard);
}

ShardRunResult ShardRun::finish(const PartAssembler& assemble) {
  ShardRunResult result;
  if (already_finished_) result.outcome = RunOutcome::already_finished;
  if (journal_) {
    try {
      run_.inputs.check_unchanged();
    } catch (const Error&) {  // drop segments that were computed from changed inputs
      StoredRun::delete_journal(*journal_);
      throw;
    }
    add_part_totals(result, *journal_);
    if (!journal_->is_complete()) {
      result.outcome = RunOutcome::interrupted;
    } else if (run_.shard.count > 1) {
      result.outcome = RunOutcome::part_finished;
      if (stored_ != nullptr) StoredRun::delete_journal(*journal_);
    } else {
      assemble_and_publish(*root_, {*journal_}, assemble, result);
    }
  }
  const bool uploaded = stored_ != nullptr && result.outcome == RunOutcome::part_finished;
  if (result.outcome == RunOutcome::interrupted || result.outcome == RunOutcome::already_finished ||
      uploaded)
    if (lock_) run_cleanup_logging_errors([&] { root_->remove_unused_part(run_.shard, *lock_); });
  lock_.reset();
  if (stored_ != nullptr && result.outcome == RunOutcome::finished)
    stored_->publish_files(run_.quiet);
  if (stored_ != nullptr && result.outcome == RunOutcome::interrupted)
    run_cleanup_logging_errors([&] { stored_->remove_unused_run(run_.shard); });
  ended_ = true;
  return result;
}

ShardRunResult merge_all_parts(const RunKind& kind, const std::string& data_root, bool quiet,
                               const PartAssembler& assemble) {
  const auto address = parse_store_uri(data_root);
  if (!address) return merge_local_parts(DataRoot(data_root, kind), kind, assemble);
  StoredRun stored(*address, kind.name);
  if (!stored.join_active_run()) {
    if (!stored.is_finished())
      reject("{}: no parts of a run are there; run them with --shard i/n first", stored.address());
    return {.outcome = RunOutcome::already_finished};
  }
  ShardRunResult result;
  const DataRoot local(stored.local_root(), kind);
  if (!local.is_finished()) {
    stored.download_all_parts(kind.unit);
    result = merge_local_parts(local, kind, assemble);
  }
  stored.publish_files(quiet);
  return result;
}

}  // namespace qkscope
