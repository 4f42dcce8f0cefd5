#include "capture/format/stored_run.h"

#include <algorithm>
#include <atomic>
#include <filesystem>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "input/hub/transfer.h"
#include "input/store/places.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;
constexpr char kComplete[] = "complete.json";
// Only the newest one of a part is needed: it holds everything added up by then.
constexpr char kStateSuffix[] = ".state";

std::string runs_prefix() {
  return fmt::format("{}/{}", store_layout::kParts, store_layout::kRuns);
}

bool is_complete_line(const std::string& line) {
  return parse_json(line, "journal").contains("complete");
}

std::vector<std::string> lines_of(const std::string& journal_file) {
  std::vector<std::string> lines;
  const MappedFile file(journal_file);
  const auto text = file.text();
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string_view::npos;
       begin = end + 1)
    lines.emplace_back(text.substr(begin, end - begin));
  return lines;
}

// The lines of a local part that count; none where it is damaged: the store has what is whole.
std::vector<std::string> local_lines(const std::string& folder) {
  const auto file = folder + "/" + layout::kJournalFile;
  if (!Journal::exists(folder) || !path_exists(file)) return {};
  try {
    const Journal journal(folder);
    auto lines = lines_of(file);
    lines.resize(std::min(lines.size(), journal.entries().size() + (journal.complete() ? 1 : 0)));
    return lines;
  } catch (const Error&) {
    return {};
  }
}

// Files of one line: "00000017.seg" and what lies beside it with the same number.
std::vector<std::string> files_of_line(const std::string& folder, const std::string& segment) {
  std::vector<std::string> files;
  if (segment.empty()) return files;
  const auto stem = fs::path(segment).stem().string();
  for (const auto& name : names_in(folder))
    if (fs::path(name).stem() == stem) files.push_back(name);
  return files;
}

std::string segment_of(const std::string& line) {
  return parse_json(line, "journal").value("segment", "");
}

Json to_json(const std::string& line, const std::vector<StoredFile>& files) {
  Json json = {{"line", line}, {"files", Json::array()}};
  for (const auto& file : files) json["files"].push_back(to_json(file));
  return json;
}

std::string shard_text(const Shard& shard) {
  return fmt::format("{}/{}", shard.index, shard.count);
}

[[noreturn]] void damaged(const std::string& where, const std::string& why) {
  bad_input("{}: damaged ({}); start again with --overwrite", where, why);
}

}  // namespace

StoredRun::StoredRun(const StoreAddress& address, std::string kind)
    : folder_(address), kind_(std::move(kind)) {}

bool StoredRun::finished() const {
  if (!folder_.there()) return false;
  if (folder_.manifest().kind != kind_)
    bad_input("{}: what is there is of the kind '{}', not '{}'; choose another output.data_root",
              address(), folder_.manifest().kind, kind_);
  return true;
}

void StoredRun::check_finished(const Json& identity, const std::string& state_file) const {
  folder_.fetch({state_file}, true);
  const Json state = load_json(folder_.local_folder() + "/" + state_file);
  if (!state.is_object() || !state.value(metadata::kStateConfiguration, Json()).is_object())
    bad_input("{}: says nothing about the run that made it; replace it with --overwrite",
              address());
  const auto difference = identity_difference(state[metadata::kStateConfiguration], identity);
  if (!difference.empty())
    bad_input(
        "{}: holds the {} of another run: {}; choose another output.data_root, or replace it with "
        "--overwrite",
        address(), kind_, difference);
}

std::optional<StoredRun::Going> StoredRun::newest_run() const {
  const auto newest = newest_object(folder_.store(), runs_prefix());
  if (!newest) return {};
  const auto where = folder_.store().where(numbered_name(runs_prefix(), newest->number));
  const auto json = parse_json(newest->content, where);
  try {
    if (json.at("format") != kFormat)
      bad_input("{}: another version of qkscope began this run; start again with --overwrite",
                where);
    Going going{.number = newest->number,
                .run = json.at("run"),
                .kind = json.at("kind"),
                .shards = json.at("shards"),
                .manifest = json.at("manifest")};
    if (going.run == folder_.manifest().run) return {};  // it is finished, or was overwritten
    return going;
  } catch (const Json::exception& error) {
    damaged(where, error.what());
  }
}

void StoredRun::check_same(const Going& going, const Manifest& manifest, const Shard& shard) const {
  if (going.kind != kind_)
    bad_input(
        "{}: the run that is going on there is of the kind '{}', not '{}'; choose another "
        "output.data_root",
        address(), going.kind, kind_);
  if (going.shards != shard.count)
    bad_input(
        "{}: holds a run in {} shard{}, not in {}; continue that one, or start again with "
        "--overwrite",
        address(), going.shards, going.shards == 1 ? "" : "s", shard.count);
  const auto there = parse_manifest_file(going.manifest, address());
  const auto difference = manifest_difference(there, manifest);
  if (!difference.empty())
    bad_input(
        "{}: holds a {} that this run cannot continue: {}; choose another output.data_root, or "
        "start again with --overwrite",
        address(), kind_, difference);
}

bool StoredRun::continues(const Manifest& manifest) const {
  const auto there = newest_run();
  if (!there || folder_.there()) return false;
  try {
    check_same(*there, manifest, {});
  } catch (const Error&) {
    return false;
  }
  return true;
}

void StoredRun::begin(const Manifest& manifest, const Shard& shard, bool overwrite) {
  if (overwrite && folder_.there()) folder_.hide(folder_.manifest().run);
  while (true) {
    const auto there = newest_run();
    bool same = there.has_value();
    if (there) {
      try {
        check_same(*there, manifest, shard);
      } catch (const Error&) {
        if (!overwrite) throw;
        same = false;
      }
    }
    // A shard of this very run: the others are overwriting too.
    if (same && overwrite) same = shard.count > 1;
    if (same) {
      going_ = *there;
      break;
    }
    const auto newest = newest_object(folder_.store(), runs_prefix());
    going_ = {.number = newest ? newest->number + 1 : 0,
              .run = unique_name(),
              .kind = kind_,
              .shards = shard.count,
              .manifest = manifest_file(manifest)};
    const Json json = {{"format", kFormat},
                       {"run", going_.run},
                       {"kind", going_.kind},
                       {"shards", going_.shards},
                       {"manifest", going_.manifest}};
    const auto name = numbered_name(runs_prefix(), going_.number);
    const auto text = json.dump(1) + "\n";
    if (folder_.store().put_if_absent(name, text)) {
      check_condition(folder_.store(), name);
      // Of two that begin together in a store with weak conditions, one sees the other's here.
      if (folder_.store().read(name) == text) return;
    }
    overwrite = false;  // another one began just now: join it
  }
  if (!overwrite) return;
  std::vector<std::string> old;
  for (const auto& object : folder_.store().list(prefix(shard))) old.push_back(object.name);
  remove_objects(folder_.store(), old);
  fs::remove_all(local_part(shard));
}

bool StoredRun::join() {
  const auto there = newest_run();
  if (there) going_ = *there;
  return there.has_value();
}

std::string StoredRun::local_root() const {
  return run_place(folder_.address(), going_.run);
}

std::string StoredRun::local_part(const Shard& shard) const {
  return DataRoot(local_root()).part(shard);
}

std::string StoredRun::prefix(const Shard& shard) const {
  return fmt::format("{}/{}/{}", store_layout::kParts, going_.run, part_name(shard));
}

std::vector<StoredRun::Record> StoredRun::read_records(const Shard& shard) const {
  auto& store = folder_.store();
  const auto record = [](const Json& json, const std::string& where) {
    Record read{.line = json.at("line"), .files = {}};
    for (const auto& file : json.at("files")) read.files.push_back(stored_file(file, where));
    return read;
  };
  std::vector<std::string> names;
  for (const auto& object : store.list(prefix(shard))) {
    if (number_of(object.name)) names.push_back(object.name);
    if (!object.name.ends_with(kComplete)) continue;
    const auto where = store.where(object.name);
    std::vector<Record> records;
    try {
      for (const auto& json : parse_json(store.read(object.name).value_or(""), where))
        records.push_back(record(json, where));
    } catch (const Json::exception& error) {
      damaged(where, error.what());
    }
    return records;
  }
  std::vector<Record> records(names.size());
  run_transfers(names.size(), [&](std::size_t i, const std::atomic<bool>&) {
    const auto where = store.where(names[i]);
    if (number_of(names[i]) != i) damaged(where, fmt::format("line {} is missing", i));
    try {
      records[i] = record(parse_json(store.read(names[i]).value_or(""), where), where);
    } catch (const Json::exception& error) {
      damaged(where, error.what());
    }
  });
  return records;
}

// `there`: lines whose files this machine has.
void StoredRun::fetch_records(const Shard& shard, const std::vector<Record>& records,
                              std::size_t there) const {
  const auto part = local_part(shard);
  make_folders(part);
  std::vector<const StoredFile*> files;
  std::string lines;
  std::size_t segments = 0;
  for (const auto& record : records) segments += record.files.empty() ? 0 : 1;
  for (std::size_t i = 0; i < records.size(); ++i) {
    lines += records[i].line + "\n";
    for (const auto& file : records[i].files) {
      const bool old_state = file.name.ends_with(kStateSuffix) && i + 1 < segments;
      if (i >= there && !old_state) files.push_back(&file);
    }
  }
  run_transfers(files.size(), [&](std::size_t i, const std::atomic<bool>&) {
    folder_.store().get(files[i]->object, part + "/" + files[i]->name, files[i]->content);
  });
  write_file(part + "/" + layout::kManifestFile, going_.manifest);
  write_file(part + "/" + layout::kJournalFile, lines);
}

void StoredRun::bring(const Shard& shard) {
  const auto part = local_part(shard);
  records_ = read_records(shard);
  const auto lines = local_lines(part);
  std::size_t same = 0;
  while (same < std::min(lines.size(), records_.size()) && lines[same] == records_[same].line)
    ++same;
  if (records_.size() > same) {
    if (lines.size() > same) {  // another machine went on from there
      same = 0;
      for (const auto& name : names_in(part))
        if (name != layout::kLockFile) fs::remove_all(part + "/" + name);
    }
    return fetch_records(shard, records_, same);
  }
  for (std::size_t i = same; i < lines.size(); ++i)
    put_line(shard, {.number = i, .text = lines[i], .segment = segment_of(lines[i])});
}

void StoredRun::bring_all(const std::string& unit) {
  std::vector<std::vector<Record>> parts(static_cast<std::size_t>(going_.shards));
  std::vector<std::string> missing;
  for (std::int64_t index = 0; index < going_.shards; ++index) {
    auto& records = parts[static_cast<std::size_t>(index)];
    records = read_records({index, going_.shards});
    std::int64_t examples = 0;
    for (const auto& record : records)
      examples += parse_json(record.line, "journal").value("examples", std::int64_t{0});
    if (records.empty())
      missing.push_back(fmt::format("{}/{} (not started)", index, going_.shards));
    else if (!is_complete_line(records.back().line))
      missing.push_back(
          fmt::format("{}/{} (unfinished, {} {})", index, going_.shards, examples, unit));
  }
  constexpr std::size_t kShown = 12;
  const auto more = missing.size() - std::min(missing.size(), kShown);
  missing.resize(std::min(missing.size(), kShown));
  if (more > 0) missing.push_back(fmt::format("and {} more", more));
  if (!missing.empty())
    bad_input("{}: shards are missing: {}; run them with --shard first", address(),
              fmt::join(missing, ", "));
  for (std::int64_t index = 0; index < going_.shards; ++index) {
    const Shard shard{index, going_.shards};
    const auto& records = parts[static_cast<std::size_t>(index)];
    if (local_lines(local_part(shard)).size() != records.size()) fetch_records(shard, records, 0);
  }
}

void StoredRun::lost(const Shard& shard) const {
  bad_input(
      "{}: another process writes shard {} of this run; this one stops, and nothing of the other's "
      "is touched",
      address(), shard_text(shard));
}

void StoredRun::put_line(const Shard& shard, const JournalLine& line) {
  auto& store = folder_.store();
  const auto part = local_part(shard);
  Record record{.line = line.text, .files = {}};
  for (const auto& name : files_of_line(part, line.segment)) {
    const fs::path path = name;
    StoredFile file{.name = name,
                    .object = fmt::format("{}/{}-{}{}", prefix(shard), path.stem().string(),
                                          unique_name(), path.extension().string()),
                    .content = {}};
    file.content = store.put(file.object, part + "/" + name);
    record.files.push_back(std::move(file));
  }
  records_.push_back(record);
  if (!line.segment.empty()) {
    const auto json = to_json(record.line, record.files);
    if (!store.put_if_absent(numbered_name(prefix(shard), line.number), json.dump() + "\n"))
      lost(shard);
  } else {
    Json all = Json::array();
    for (const auto& each : records_) all.push_back(to_json(each.line, each.files));
    if (!store.put_if_absent(prefix(shard) + "/" + kComplete, all.dump() + "\n")) lost(shard);
  }
  if (line.number == 0 || line.segment.empty()) return;
  for (const auto& file : records_[line.number - 1].files)
    if (file.name.ends_with(kStateSuffix)) store.remove(file.object);
}

void StoredRun::follow(Journal& journal, const Shard& shard) {
  journal.follow([this, shard](const JournalLine& line) { put_line(shard, line); });
}

void StoredRun::forget(const Journal& journal) {
  fs::remove(journal.folder() + "/" + layout::kJournalFile);
}

void StoredRun::publish(bool quiet) {
  const auto there = newest_run();
  if (there && there->run != going_.run)
    bad_input("{}: was started again with --overwrite by another process; this one stops",
              address());
  folder_.publish(local_root(), kind_, going_.run, quiet);
  auto& store = folder_.store();
  std::vector<std::string> old;
  for (const auto& object : store.list(fmt::format("{}/{}", store_layout::kParts, going_.run)))
    old.push_back(object.name);
  for (std::size_t number = 0; number <= going_.number; ++number)
    old.push_back(numbered_name(runs_prefix(), number));
  remove_objects(store, old);
  fs::remove_all(local_root());
}

void StoredRun::abandon(const Shard& shard) {
  if (shard.count > 1) return;
  auto& store = folder_.store();
  if (!store.list(fmt::format("{}/{}", store_layout::kParts, going_.run)).empty()) return;
  store.remove(numbered_name(runs_prefix(), going_.number));
}

std::string stored_kind(const StoreAddress& address) {
  const StoredFolder folder(address);
  if (folder.there()) return folder.manifest().kind;
  const auto newest = newest_object(folder.store(), runs_prefix());
  if (!newest) return "";
  return parse_json(newest->content, address.to_string()).value("kind", "");
}

}  // namespace qkscope
