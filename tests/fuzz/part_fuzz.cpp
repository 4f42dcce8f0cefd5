// Working files of a capture: throw an Error, or give a part with consistent counts and readable
// rows. The input is {"manifest": {...}, "journal": [lines]}, a byte 0xFF and a segment. All
// checksums are recomputed before reading, so that mutations pass them.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/core/error.h"
#include "base/io/checksum.h"
#include "capture/format/journal.h"
#include "capture/format/layout.h"
#include "capture/format/segment.h"
#include "capture/verify_part.h"
#include "expect.h"
#include "temporary_folder.h"

namespace {

using namespace qkscope;

constexpr char kSplit = '\xff';

// Uses a RAM file system if there is one, because ext4 flushes replaced files to disk at once.
const TemporaryFolder& folder_of_part() {
  static const TemporaryFolder folder = [] {
    constexpr char kMemory[] = "/dev/shm";
    if (std::filesystem::is_directory(kMemory)) ::setenv("TMPDIR", kMemory, 0);
    return TemporaryFolder();
  }();
  return folder;
}

void write(const std::string& path, std::string_view bytes) {
  std::ofstream(path) << bytes;  // without fsync
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Fields of the segment trailer that the fuzzer sets.
constexpr std::size_t kTrailerBytes = 64;
enum TrailerWord : std::size_t { kIndexOffset = 2, kDataSum = 4, kIndexSum = 5, kSum = 6 };

std::uint64_t seal_segment(std::string& segment) {
  if (segment.size() < kTrailerBytes) return 0;
  const auto at = segment.size() - kTrailerBytes;
  const auto word = [&](TrailerWord i) { return segment.data() + at + i * sizeof(std::uint64_t); };
  const auto set = [&](TrailerWord i, std::uint64_t value) {
    std::memcpy(word(i), &value, sizeof value);
    return value;
  };
  std::uint64_t index = 0;
  std::memcpy(&index, word(kIndexOffset), sizeof index);
  const std::string_view bytes(segment);
  if (index <= at) {
    set(kDataSum, checksum_of(bytes.substr(0, index)));
    set(kIndexSum, checksum_of(bytes.substr(index, at - index)));
  }
  return set(kSum, checksum_of(bytes.substr(at, kSum * sizeof(std::uint64_t))));
}

std::string sealed_manifest(Json manifest) {
  if (manifest.is_object()) {
    manifest.erase("checksum");
    manifest["checksum"] = format_checksum(checksum_of(dump(manifest)));
  }
  return dump(manifest);
}

std::string sealed_journal(Json lines, std::uint64_t segment) {
  std::string text;
  std::uint64_t check = 0;
  for (auto& line : lines) {
    if (line.is_object()) {
      line.erase("check");
      if (line.contains("segment")) line["checksum"] = format_checksum(segment);
      check = checksum_of(format_checksum(check) + dump(line));
      line["check"] = format_checksum(check);
    }
    text += dump(line) + "\n";
  }
  return text;
}

void read_rows(const Journal& journal, const JournalEntry& entry) {
  const auto& manifest = journal.manifest();
  const SegmentReader segment(journal.segment_path(entry.segment), manifest.groups.size());
  const auto width = static_cast<std::size_t>(manifest.head_dim);
  CapturedRows block;
  for (std::size_t group = 0; group < manifest.groups.size(); ++group)
    for (const auto& rows : segment.read_block_index(group))
      for (std::size_t head = 0; head < manifest.groups[group].heads.size(); ++head) {
        segment.read_block(rows, {.first = head}, manifest.head_dim, block);
        FUZZ_EXPECT(block.positions.size() == rows.rows);
        FUZZ_EXPECT(block.vectors.size() == rows.rows * width);
        FUZZ_EXPECT(block.token_strings.size() == (manifest.token_strings ? rows.rows : 0));
      }
}

void check_journal(const Journal& journal) {
  FUZZ_EXPECT(journal.example_count() >= 0 && journal.row_count() >= 0 &&
              journal.token_count() >= 0);
  const auto& manifest = journal.manifest();
  FUZZ_EXPECT(describe_manifest_difference(manifest, manifest).empty());
  for (const auto& group : manifest.groups)
    for (const auto head : group.heads) manifest.head_file_metadata(group, head);
  verify_part(journal);
  for (const auto& entry : journal.entries()) read_rows(journal, entry);
}

template <typename Read>
void refuses_or_reads(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    FUZZ_EXPECT(error.kind() == ErrorKind::bad_input);
  }
}

// Reads the bytes with their original checksums.
void check_bytes(const TemporaryFolder& folder, std::string_view input) {
  const auto path = folder.file("bytes");
  write(path, input);
  refuses_or_reads([&] { load_manifest(path); });
  refuses_or_reads([&] {
    const SegmentReader segment(path, 1);
    segment.verify_checksums();
    segment.read_example_table();
  });
}

void check_sealed(const TemporaryFolder& folder, const Json& part, std::string segment) {
  const auto checksum = seal_segment(segment);
  for (const std::size_t number : {0, 1}) write(folder.file(segment_name(number)), segment);
  write(folder.file(layout::kManifestFile), sealed_manifest(part.value("manifest", Json())));
  write(folder.file(layout::kJournalFile), sealed_journal(part.value("journal", Json()), checksum));
  refuses_or_reads([&] { check_journal(Journal(folder.path())); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto& folder = folder_of_part();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check_bytes(folder, input);
  const auto end = std::min(input.find(kSplit), size);
  Json part;
  try {
    part = parse_json(input.substr(0, end), "fuzz");
  } catch (const Error&) {
    return 0;
  }
  if (part.is_object())
    check_sealed(folder, part, std::string(input.substr(std::min(end + 1, size))));
  return 0;
}
