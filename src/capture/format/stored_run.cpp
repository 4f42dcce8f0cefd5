#include "capture/format/stored_run.h"

#include <algorithm>
#include <atomic>
#include <filesystem>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "input/hub/http.h"
#include "input/store/object_store.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr int kRunFormat = 1;
constexpr char kComplete[] = "complete.json";

std::string run_object_prefix() {
  return fmt::format("{}/{}", store_layout::kParts, store_layout::kRuns);
}

// Returns the valid journal lines of a local part; none if damaged, so that it is downloaded again.
std::vector<std::string> local_journal_lines(const std::string& folder) {
  const auto file = folder + "/" + layout::kJournalFile;
  if (!Journal::exists(folder) || !path_exists(file)) return {};
  const auto valid_lines = [&] {
    const Journal journal(folder);
    auto lines = split(MappedFile(file).text(), '\n');
    lines.resize(
        std::min(lines.size(), journal.entries().size() + (journal.is_complete() ? 1 : 0)));
    return lines;
  };
  return value_or_on_bad_input(valid_lines, std::vector<std::string>());
}

[[noreturn]] void throw_damaged_journal(const std::string& where, const std::string& why) {
  reject("{}: damaged ({}); start again with --overwrite", where, why);
}

}  // namespace

StoredRun::StoredRun(const StoreUri& address, std::string kind)
    : folder_(address), kind_(std::move(kind)) {}

bool StoredRun::is_finished() const {
  if (!folder_.is_published()) return false;
  if (folder_.manifest().kind != kind_)
    reject("{}: what is there is of the kind '{}', not '{}'; choose another output.data_root",
           address(), folder_.manifest().kind, kind_);
  return true;
}

void StoredRun::check_identity_of_finished_run(const Json& identity,
                                               const std::string& state_file) const {
  folder_.fetch_files({state_file}, true);
  const Json state = load_json(folder_.local_folder() + "/" + state_file);
  if (!state.is_object() || !state.value(metadata::kStateConfiguration, Json()).is_object())
    reject("{}: says nothing about the run that made it; replace it with --overwrite", address());
  const auto difference =
      describe_identity_difference(state[metadata::kStateConfiguration], identity);
  if (!difference.empty())
    reject(
        "{}: holds the {} of another run: {}; choose another output.data_root, or replace it with "
        "--overwrite",
        address(), kind_, difference);
}

std::optional<StoredRun::ActiveRun> StoredRun::find_active_run() const {
  return parse_active_run(read_newest_object(folder_.object_store(), run_object_prefix()));
}

std::optional<StoredRun::ActiveRun> StoredRun::parse_active_run(
    const std::optional<VersionedObject>& newest) const {
  if (!newest) return {};
  const auto where = folder_.object_store().object_address(
      versioned_object_name(run_object_prefix(), newest->number));
  const auto json = parse_json(newest->content, where);
  try {
    if (json.at("format") != kRunFormat)
      reject("{}: another version of qkscope began this run; start again with --overwrite", where);
    auto active = json.get<ActiveRun>();
    active.number = newest->number;
    if (active.run == folder_.manifest().run) return {};  // the run is finished or overwritten
    return active;
  } catch (const Json::exception& error) {
    throw_damaged_journal(where, error.what());
  }
}

void StoredRun::check_same_run(const ActiveRun& active, const Manifest& manifest,
                               const Shard& shard) const {
  if (active.kind != kind_)
    reject(
        "{}: the run that is going on there is of the kind '{}', not '{}'; choose another "
        "output.data_root",
        address(), active.kind, kind_);
  if (active.shards != shard.count)
    reject(
        "{}: holds a run in {} shard{}, not in {}; continue that one, or start again with "
        "--overwrite",
        address(), active.shards, active.shards == 1 ? "" : "s", shard.count);
  const auto there = parse_manifest_file(active.manifest, address());
  const auto difference = describe_manifest_difference(there, manifest);
  if (!difference.empty())
    reject(
        "{}: holds a {} that this run cannot continue: {}; choose another output.data_root, or "
        "start again with --overwrite",
        address(), kind_, difference);
}

bool StoredRun::can_be_resumed_by(const Manifest& manifest) const {
  const auto there = find_active_run();
  if (!there || folder_.is_published()) return false;
  const auto check = [&] {
    check_same_run(*there, manifest, {});
    return true;
  };
  return value_or_on_bad_input(check, false);
}

void StoredRun::begin_or_join_run(const Manifest& manifest, const Shard& shard, bool overwrite) {
  if (overwrite && folder_.is_published()) folder_.mark_removed(folder_.manifest().run);
  while (true) {
    // A single listing decides whether a run exists and which number a new run gets. If another
    // process starts a run after the listing, it takes that number and this process joins the run.
    const auto newest = read_newest_object(folder_.object_store(), run_object_prefix());
    const auto there = parse_active_run(newest);
    const auto check = [&] {
      check_same_run(*there, manifest, shard);
      return true;
    };
    // If all shards start with --overwrite, the first one begins a new run and the others join it.
    if (there && (overwrite ? shard.count > 1 && value_or_on_bad_input(check, false) : check())) {
      run_ = *there;
      break;
    }
    run_ = {.number = newest ? newest->number + 1 : 0,
            .run = make_timestamped_id(),
            .kind = kind_,
            .shards = shard.count,
            .manifest = manifest_file_content(manifest)};
    Json json = run_;
    json["format"] = kRunFormat;
    const auto name = versioned_object_name(run_object_prefix(), run_.number);
    const auto text = json.dump(1) + "\n";
    if (folder_.object_store().put_if_absent(name, text)) {
      verify_conditional_put_support(folder_.object_store(), name);
      // Read the object back: without an atomic put-if-absent, another writer may have replaced it.
      began_run_ = folder_.object_store().read(name) == text;
      if (began_run_) return;
    }
    overwrite = false;  // another process began a run at the same time: join that run
  }
  if (!overwrite) return;
  const auto old = folder_.object_store().list(part_object_prefix(shard));
  remove_objects(folder_.object_store(), to_vector(old, &StoredObject::name));
  fs::remove_all(local_part_folder(shard));
}

bool StoredRun::join_active_run() {
  const auto there = find_active_run();
  if (there) run_ = *there;
  return there.has_value();
}

std::string StoredRun::part_object_prefix(const Shard& shard) const {
  return fmt::format("{}/{}/{}", store_layout::kParts, run_.run, part_name(shard));
}

std::vector<StoredRun::StoredJournalLine> StoredRun::read_journal_lines(const Shard& shard) const {
  auto& store = folder_.object_store();
  const auto read_object = [&](const std::string& name) {
    const auto where = store.object_address(name);
    const auto json = parse_json(store.read(name).value_or(""), where);
    std::vector<StoredJournalLine> records;
    try {
      for (const auto& item : name.ends_with(kComplete) ? json : Json::array({json})) {
        auto& record = records.emplace_back();
        record.line = item.at("line");
        for (const auto& file : item.at("files"))
          record.files.push_back(parse_manifest_entry(file, where));
      }
    } catch (const Json::exception& error) {
      throw_damaged_journal(where, error.what());
    }
    return records;
  };
  std::vector<std::string> names;
  for (const auto& object : store.list(part_object_prefix(shard))) {
    if (object.name.ends_with(kComplete)) return read_object(object.name);
    if (parse_object_version(object.name)) names.push_back(object.name);
  }
  std::vector<StoredJournalLine> records(names.size());
  run_transfers(names.size(), [&](std::size_t i, const std::atomic<bool>&) {
    if (parse_object_version(names[i]) != i)
      throw_damaged_journal(store.object_address(names[i]), fmt::format("line {} is missing", i));
    records[i] = std::move(read_object(names[i]).front());
  });
  return records;
}

void StoredRun::fetch_journal_files(const Shard& shard,
                                    const std::vector<StoredJournalLine>& records,
                                    std::size_t present) const {
  const auto part = local_part_folder(shard);
  make_folders(part);
  std::vector<const ManifestEntry*> files;
  std::string lines;
  std::size_t segments = 0;
  for (const auto& record : records) segments += record.files.empty() ? 0 : 1;
  for (std::size_t i = 0; i < records.size(); ++i) {
    lines += records[i].line + "\n";
    for (const auto& file : records[i].files) {
      const bool old_state = file.name.ends_with(layout::kStateSuffix) && i + 1 < segments;
      if (i >= present && !old_state) files.push_back(&file);
    }
  }
  run_transfers(files.size(), [&](std::size_t i, const std::atomic<bool>&) {
    folder_.object_store().download_to_file(files[i]->object, part + "/" + files[i]->name,
                                            files[i]->content);
  });
  write_file(part + "/" + layout::kManifestFile, run_.manifest);
  write_file(part + "/" + layout::kJournalFile, lines);
}

void StoredRun::download_part(const Shard& shard) {
  const auto part = local_part_folder(shard);
  records_ = read_journal_lines(shard);
  const auto lines = local_journal_lines(part);
  std::size_t same = 0;
  while (same < std::min(lines.size(), records_.size()) && lines[same] == records_[same].line)
    ++same;
  if (records_.size() > same) {
    if (lines.size() > same) {  // another machine continued the part: discard the local copy
      same = 0;
      for (const auto& name : entry_names(part))
        if (name != layout::kLockFile) fs::remove_all(fs::path(part) / name);
    }
    return fetch_journal_files(shard, records_, same);
  }
  for (std::size_t i = same; i < lines.size(); ++i)
    upload_journal_line(shard, {.number = i,
                                .text = lines[i],
                                .segment = parse_json(lines[i], "journal").value("segment", "")});
}

void StoredRun::download_all_parts(const std::string& unit) {
  std::vector<std::vector<StoredJournalLine>> parts(static_cast<std::size_t>(run_.shards));
  std::vector<std::string> missing;
  for (std::int64_t index = 0; index < run_.shards; ++index) {
    auto& records = parts[static_cast<std::size_t>(index)];
    records = read_journal_lines({index, run_.shards});
    std::int64_t examples = 0;
    for (const auto& record : records)
      examples += parse_json(record.line, "journal").value("examples", std::int64_t{0});
    if (records.empty())
      missing.push_back(fmt::format("{}/{} (not started)", index, run_.shards));
    else if (!parse_json(records.back().line, "journal").contains("complete"))
      missing.push_back(
          fmt::format("{}/{} (unfinished, {} {})", index, run_.shards, examples, unit));
  }
  if (!missing.empty()) throw_missing_shards(address(), std::move(missing));
  for (std::int64_t index = 0; index < run_.shards; ++index) {
    const Shard shard{index, run_.shards};
    const auto& records = parts[static_cast<std::size_t>(index)];
    if (local_journal_lines(local_part_folder(shard)).size() != records.size())
      fetch_journal_files(shard, records, 0);
  }
}

void StoredRun::upload_journal_line(const Shard& shard, const AppendedJournalLine& line) {
  auto& store = folder_.object_store();
  const auto part = local_part_folder(shard);
  const auto prefix = part_object_prefix(shard);
  StoredJournalLine record{.line = line.text, .files = {}};
  const bool complete = line.segment.empty();
  for (const auto& name : complete ? std::vector<std::string>() : entry_names(part)) {
    const fs::path path = name;
    if (path.stem() != fs::path(line.segment).stem()) continue;
    ManifestEntry file{.name = name,
                       .object = fmt::format("{}/{}-{}{}", prefix, path.stem().string(),
                                             make_timestamped_id(), path.extension().string()),
                       .content = {}};
    file.content = store.put(file.object, fs::path(part) / path);
    record.files.push_back(std::move(file));
  }
  records_.push_back(record);
  const auto as_json = [](const StoredJournalLine& stored) {
    return Json{{"line", stored.line},
                {"files", to_vector(stored.files, [](const auto& file) { return to_json(file); })}};
  };
  const Json json = complete ? Json(to_vector(records_, as_json)) : as_json(record);
  const auto name =
      complete ? prefix + "/" + kComplete : versioned_object_name(prefix, line.number);
  if (!store.put_if_absent(name, json.dump() + "\n"))
    reject(
        "{}: another process writes shard {}/{} of this run; this one stops, and nothing of the "
        "other's is touched",
        address(), shard.index, shard.count);
  if (line.number == 0 || complete) return;
  for (const auto& file : records_[line.number - 1].files)
    if (file.name.ends_with(layout::kStateSuffix)) store.remove(file.object);
}

void StoredRun::upload_new_journal_lines(Journal& journal, const Shard& shard) {
  journal.set_append_callback(
      [this, shard](const AppendedJournalLine& line) { upload_journal_line(shard, line); });
}

void StoredRun::delete_journal(const Journal& journal) {
  fs::remove(journal.folder() + "/" + layout::kJournalFile);
}

void StoredRun::publish_files(bool quiet) {
  const auto there = find_active_run();
  if (there && there->run != run_.run)
    reject("{}: was started again with --overwrite by another process; this one stops", address());
  folder_.publish(local_root(), kind_, run_.run, quiet);
  auto& store = folder_.object_store();
  auto old = to_vector(store.list(fmt::format("{}/{}", store_layout::kParts, run_.run)),
                       &StoredObject::name);
  for (std::size_t number = 0; number <= run_.number; ++number)
    old.push_back(versioned_object_name(run_object_prefix(), number));
  remove_objects(store, old);
  fs::remove_all(local_root());
}

void StoredRun::remove_unused_run(const Shard& shard) {
  if (shard.count > 1 || !began_run_) return;
  auto& store = folder_.object_store();
  if (!store.list(fmt::format("{}/{}", store_layout::kParts, run_.run)).empty()) return;
  store.remove(versioned_object_name(run_object_prefix(), run_.number));
}

std::string stored_run_kind(const StoreUri& address) {
  const StoredFolder folder(address);
  if (folder.is_published()) return folder.manifest().kind;
  const auto newest = read_newest_object(folder.object_store(), run_object_prefix());
  if (!newest) return "";
  return parse_json(newest->content, address.to_string()).value("kind", "");
}

}  // namespace qkscope
