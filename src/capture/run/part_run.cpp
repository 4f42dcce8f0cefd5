#include "capture/run/part_run.h"

#include <utility>

#include <fmt/format.h>

#include "base/core/clock.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "capture/format/stored_run.h"

namespace qkscope {
namespace {

// Log cleanup errors; the original exception or outcome is the one to report.
template <typename Cleanup>
void clean_up(const Cleanup& cleanup) {
  try {
    cleanup();
  } catch (const Error& error) {
    log::warn("{}", error.what());
  }
}

void add_totals(PartRunResult& result, const Journal& part) {
  result.examples += part.examples();
  result.rows += part.rows();
  result.tokens += part.tokens();
  result.non_finite += part.non_finite();
}

void assemble_and_publish(const DataRoot& root, std::vector<Journal> parts,
                          const AssembleParts& assemble, PartRunResult& result) {
  const auto start = Clock::now();
  assemble(root, std::move(parts));
  log::debug("assembly, {:.3f} s: the files are written", seconds_since(start));
  root.publish();
  result.assembly_seconds = seconds_since(start);
  log::debug("assembly, {:.3f} s: the files are published", result.assembly_seconds);
}

void expect_parts(const DataRoot& root, const RunKind& kind) {
  if (root.shards().empty())
    bad_input("{}: there are no parts of {}; run 'qkscope {} --shard i/n' first", root.path(),
              kind.noun, kind.command);
}

// Parts copied into the folder by hand may belong to another run.
void check_one_run(const DataRoot& root, const Journal& first, const Journal& part) {
  const auto difference = describe_manifest_difference(first.manifest(), part.manifest());
  if (!difference.empty())
    bad_input("{}: {} and {} are not parts of one run: {}", root.path(), first.folder(),
              part.folder(), difference);
}

// Returns all shards in order; they share one manifest object.
std::vector<Journal> complete_parts(const DataRoot& root, const RunKind& kind) {
  expect_parts(root, kind);
  const auto count = root.shards().front().count;
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
          fmt::format("{}/{} (unfinished, {} {})", index, count, part.examples(), kind.unit));
    if (!parts.empty() && missing.empty()) {
      check_one_run(root, parts.front(), part);
      part.share_manifest(parts.front());
    }
    parts.push_back(std::move(part));
  }
  if (!missing.empty()) refuse_missing_shards(root.path(), std::move(missing));
  return parts;
}

PartRunResult merge_in_folder(const DataRoot& root, const RunKind& kind,
                              const AssembleParts& assemble) {
  if (root.is_finished()) {  // parts are left where an earlier merge ended before it removed them
    root.remove_leftover_parts();
    return {.outcome = RunOutcome::already_finished};
  }
  expect_parts(root, kind);  // before the lock creates a folder
  const auto lock = root.lock_whole_root();
  auto parts = complete_parts(root, kind);
  PartRunResult result;
  for (const auto& part : parts) add_totals(result, part);
  assemble_and_publish(root, std::move(parts), assemble, result);
  return result;
}

}  // namespace

PartRunResult PartRun::run() const {
  if (const auto address = parse_store_address(data_root)) return run_in_store(*address);
  return run_in_folder(DataRoot(data_root, kind), nullptr);
}

PartRunResult PartRun::run_in_store(const StoreAddress& address) const {
  if (overwrite) check_inputs();
  StoredRun stored(address, kind.name);
  if (!overwrite && stored.is_finished()) {
    stored.check_finished_identity(manifest.identity, kind.state_file);
    return {.outcome = RunOutcome::already_finished};
  }
  stored.begin_or_join(manifest, shard, overwrite);
  PartRunResult result;
  try {
    // A finished local root means that an earlier process ended before it uploaded the files.
    const DataRoot local(stored.local_root(), kind);
    if (!local.is_finished()) result = run_in_folder(local, &stored);
    if (result.outcome == RunOutcome::finished) stored.publish(quiet);
  } catch (...) {
    clean_up([&] { stored.remove_unused_run(shard); });
    throw;
  }
  if (result.outcome == RunOutcome::interrupted) clean_up([&] { stored.remove_unused_run(shard); });
  return result;
}

PartRunResult PartRun::run_in_folder(const DataRoot& root, StoredRun* stored) const {
  const bool replace = overwrite && stored == nullptr;  // a store removes its own objects
  if (root.is_finished() && !replace) {
    root.check_finished_identity(manifest.identity);
    root.remove_leftover_parts();
    return {.outcome = RunOutcome::already_finished};
  }
  PartRunResult result;
  const auto lock = root.lock(shard);
  const auto remove_unused_part = [&] { root.remove_unused_part(shard, lock); };
  try {
    root.refuse_foreign_files();
    if (replace) {
      check_inputs();
      root.remove_run_files(manifest, shard);
    } else if (root.is_being_replaced()) {  // an earlier --overwrite ended too soon
      root.remove_finished_files();
    }
    result = run_locked(root, stored);
  } catch (...) {
    clean_up(remove_unused_part);
    throw;
  }
  const bool uploaded = stored != nullptr && result.outcome == RunOutcome::part_finished;
  if (result.outcome == RunOutcome::interrupted || result.outcome == RunOutcome::already_finished ||
      uploaded)
    clean_up(remove_unused_part);
  return result;
}

PartRunResult PartRun::run_locked(const DataRoot& root, StoredRun* stored) const {
  if (root.is_finished()) {  // another process finished the run before this one got the lock
    root.check_finished_identity(manifest.identity);
    return {.outcome = RunOutcome::already_finished};
  }
  if (stored != nullptr) stored->download_part(shard);
  auto journal = root.open_part(manifest, shard);
  journal.remove_unlisted_files();
  if (stored != nullptr) stored->upload_new_lines(journal, shard);
  if (!journal.is_complete()) write_part(root, journal);
  try {
    inputs.check_unchanged();
  } catch (const Error&) {  // drop segments that were computed from changed inputs
    StoredRun::delete_journal(journal);
    throw;
  }
  PartRunResult result;
  add_totals(result, journal);
  if (!journal.is_complete()) {
    result.outcome = RunOutcome::interrupted;
  } else if (shard.count > 1) {
    result.outcome = RunOutcome::part_finished;
    if (stored != nullptr) StoredRun::delete_journal(journal);
  } else {
    assemble_and_publish(root, {journal}, assemble, result);
  }
  return result;
}

PartRunResult merge_all_parts(const RunKind& kind, const std::string& data_root, bool quiet,
                              const AssembleParts& assemble) {
  const auto address = parse_store_address(data_root);
  if (!address) return merge_in_folder(DataRoot(data_root, kind), kind, assemble);
  StoredRun stored(*address, kind.name);
  if (!stored.join_active_run()) {
    if (!stored.is_finished())
      bad_input("{}: no parts of a run are there; run them with --shard i/n first",
                stored.address());
    return {.outcome = RunOutcome::already_finished};
  }
  PartRunResult result;
  const DataRoot local(stored.local_root(), kind);
  if (!local.is_finished()) {
    stored.download_all_parts(kind.unit);
    result = merge_in_folder(local, kind, assemble);
  }
  stored.publish(quiet);
  return result;
}

}  // namespace qkscope
