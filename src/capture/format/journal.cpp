#include "capture/format/journal.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

#include <fcntl.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/checksum.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "capture/format/layout.h"
#include "capture/format/segment.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr char kCheck[] = "check";

std::uint64_t parse_checksum(const std::string& text) {
  return parse_number<std::uint64_t>(text, 16).value_or(0);
}

// Counts are limited to 2^40, so that sums over many segments fit into 64 bits.
std::int64_t parse_count(const Json& count) {
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 40;
  if (!count.is_number_unsigned() || count.get<std::uint64_t>() > kLargest)
    reject("{}: expected a count", count.dump());
  return count.get<std::int64_t>();
}

JournalEntry parse_journal_entry(const Json& line) {
  JournalEntry entry;
  entry.segment = line.at("segment");
  entry.examples = parse_count(line.at("examples"));
  entry.rows = parse_count(line.at("rows"));
  entry.tokens = parse_count(line.at("tokens"));
  if (line.contains("non_finite")) entry.non_finite = parse_count(line.at("non_finite"));
  entry.checksum = parse_checksum(line.at("checksum").get<std::string>());
  return entry;
}

// Hash chain: a line's checksum covers its content and `before`, the checksum of the previous line.
std::uint64_t chained_line_checksum(std::uint64_t before, const std::string& content) {
  return checksum_of(format_checksum(before) + content);
}

// First and last dataset row of a segment, or -1 if the segment has no examples.
struct RowRange {
  std::int64_t first = -1;
  std::int64_t last = -1;
};

// Whether an example from dataset row `row` may follow an example from row `last`. The rows may be
// equal if texts are split into chunks, because the chunks of one text have the same row.
bool is_row_in_order(const Journal& journal, std::int64_t last, std::int64_t row) {
  const auto& identity = journal.manifest().identity;
  const bool in_chunks = identity.contains("tokenizer") && identity["tokenizer"].contains("chunk");
  return in_chunks ? row >= last : row > last;
}

RowRange verify_segment(const Journal& journal, const JournalEntry& entry) {
  const auto path = journal.segment_path(entry.segment);
  const auto shard =
      parse_part_name(fs::path(journal.folder()).filename().string()).value_or(Shard{});
  const auto& manifest = journal.manifest();
  const SegmentReader segment(path, manifest.groups.size());
  if (segment.checksum() != entry.checksum)
    reject("{}: not the segment that the journal means; start again with --overwrite", path);
  segment.verify_checksums();
  const auto table = segment.read_example_table();
  std::int64_t rows = 0;  // summed over all heads
  for (std::size_t group = 0; group < manifest.groups.size(); ++group) {
    const auto blocks = segment.read_block_index(group);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const auto& block = blocks[i];
      const bool strings = manifest.token_strings && block.rows > 0;
      if (block.example_row != table[i].row || block.example_key != table[i].key ||
          std::int64_t{block.rows} > table[i].tokens || (block.string_bytes > 0) != strings)
        reject("{}: its index and row {} of the dataset disagree; start again with --overwrite",
               path, table[i].row);
      rows += std::int64_t{block.rows} * std::ssize(manifest.groups[group].heads);
    }
  }
  RowRange range;
  std::int64_t tokens = 0;
  for (const auto& example : table) {
    if (!is_row_in_order(journal, range.last, example.row) ||
        example.row % shard.count != shard.index)
      reject("{}: row {} of the dataset is out of its turn; start again with --overwrite", path,
             example.row);
    if (range.first < 0) range.first = example.row;
    range.last = example.row;
    tokens += example.tokens;
  }
  const auto expect = [&](const char* what, std::int64_t found, std::int64_t said) {
    if (found != said)
      reject("{}: has {} {}, the journal says {}; start again with --overwrite", path, found, what,
             said);
  };
  expect("rows", rows, entry.rows);
  expect("examples", std::ssize(table), entry.examples);
  expect("tokens", tokens, entry.tokens);
  return range;
}

}  // namespace

void Journal::create(const std::string& folder, const Manifest& manifest) {
  write_file(folder + "/" + layout::kManifestFile, manifest_file_content(manifest));
}

bool Journal::exists(const std::string& folder) {
  return fs::exists(folder + "/" + layout::kManifestFile);
}

bool Journal::has_entries(const std::string& folder) {
  const auto path = folder + "/" + layout::kJournalFile;
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) return false;
  // Callers delete parts without entries, so an I/O error must not look like an empty journal.
  if (error) throw_system_error("read", path, error.value());
  return size > 0;
}

Journal::Journal(const std::string& folder) : folder_(folder) {
  manifest_ = std::make_shared<const Manifest>(load_manifest(folder + "/" + layout::kManifestFile));
  if (path_exists(folder + "/" + layout::kJournalFile)) read_lines();
  for (const auto& entry : entries_)
    if (!path_exists(segment_path(entry.segment)))
      reject("{}: missing, but the journal beside it names it; start again with --overwrite",
             segment_path(entry.segment));
}

void Journal::read_lines() {
  const MappedFile file(folder_ + "/" + layout::kJournalFile);
  const auto text = file.text();
  for (std::size_t end = 0; (end = text.find('\n', valid_bytes_)) != std::string_view::npos;) {
    if (!parse_line(text.substr(valid_bytes_, end - valid_bytes_))) {
      if (text.find('\n', end + 1) == std::string_view::npos) return;  // a crash tore the last line
      reject("{}: line {} is damaged; start again with --overwrite", file.path(),
             entries_.size() + 1);
    }
    valid_bytes_ = end + 1;
  }
}

// Adds the entry of a journal line. Returns false if the line is damaged.
bool Journal::parse_line(std::string_view text) {
  Json line;
  try {
    line = parse_json(text, segment_path(layout::kJournalFile));
    const auto check = parse_checksum(line.at(kCheck).get<std::string>());
    line.erase(kCheck);
    if (check != chained_line_checksum(check_, line.dump())) return false;
    check_ = check;
    if (complete_) return false;  // no line may follow the completion mark
    if (line.contains("complete")) {
      complete_ = true;
      return true;
    }
    auto entry = parse_journal_entry(line);
    if (entry.segment != segment_name(entries_.size())) return false;
    entries_.push_back(std::move(entry));
    return true;
  } catch (const Json::exception&) {
    return false;
  } catch (const Error&) {
    return false;
  }
}

std::int64_t Journal::sum_over_entries(std::int64_t JournalEntry::*member) const {
  std::int64_t sum = 0;
  for (const auto& entry : entries_) sum += entry.*member;
  return sum;
}

void Journal::append_line(Json line) {
  const auto path = folder_ + "/" + layout::kJournalFile;
  const bool first = !path_exists(path);
  const FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file.is_open()) throw_system_error("write", path, errno);
  const auto check = chained_line_checksum(check_, line.dump());
  line[kCheck] = format_checksum(check);
  const auto text = line.dump() + "\n";
  const auto at = static_cast<off_t>(valid_bytes_);
  if (::ftruncate(file.fd(), at) != 0 || ::lseek(file.fd(), at, SEEK_SET) != at)
    throw_system_error("write", path, errno);
  write_all(file, std::as_bytes(std::span(text)), path);
  if (::fsync(file.fd()) != 0) throw_system_error("write", path, errno);
  if (first) fsync_folder(folder_);
  valid_bytes_ += text.size();
  check_ = check;
  if (on_append_)
    on_append_(
        {.number = entries_.size(), .text = line.dump(), .segment = line.value("segment", "")});
}

void Journal::append_entry(const JournalEntry& entry) {
  Json line = {{"segment", entry.segment},
               {"examples", entry.examples},
               {"rows", entry.rows},
               {"tokens", entry.tokens},
               {"checksum", format_checksum(entry.checksum)}};
  if (entry.non_finite > 0) line["non_finite"] = entry.non_finite;
  append_line(std::move(line));
  entries_.push_back(entry);
}

void Journal::mark_complete() {
  append_line({{"complete", true}});
  complete_ = true;
}

Journal Journal::copy_without_entries() const {
  Journal journal;
  journal.folder_ = folder_;
  journal.manifest_ = manifest_;
  return journal;
}

void Journal::remove_unlisted_files() const {
  std::set<std::string> named;  // file names without suffix
  for (const auto& entry : entries_) named.insert(fs::path(entry.segment).stem().string());
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const auto name = entry.path().filename().string();
    bool stray = name.ends_with(".tmp");
    for (const auto* suffix :
         {layout::kSegmentSuffix, layout::kStateSuffix, layout::kDocumentsSuffix})
      if (const auto at = name.find(suffix); at != std::string::npos)
        stray = stray || !name.ends_with(suffix) || !named.contains(name.substr(0, at));
    if (stray) fs::remove(entry.path());
  }
}

void verify_new_segments(std::span<SegmentVerificationProgress> parts) {
  struct Segment {
    SegmentVerificationProgress* part;
    const JournalEntry* entry;
    RowRange rows;
  };
  std::vector<Segment> segments;
  for (auto& part : parts)
    for (const auto& entry : std::span(part.journal->entries()).subspan(part.segments))
      segments.push_back({&part, &entry, {}});
  parallel_for(std::ssize(segments), [&](std::int64_t i) {
    auto& segment = segments[static_cast<std::size_t>(i)];
    segment.rows = verify_segment(*segment.part->journal, *segment.entry);
  });
  for (const auto& [part, entry, rows] : segments) {
    if (rows.first >= 0 && !is_row_in_order(*part->journal, part->last_row, rows.first))
      reject("{}: row {} of the dataset is there twice; start again with --overwrite",
             part->journal->segment_path(entry->segment), rows.first);
    part->last_row = std::max(part->last_row, rows.last);
    ++part->segments;
  }
}

}  // namespace qkscope
