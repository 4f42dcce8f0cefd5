#include "captures/journal.h"

#include <cerrno>
#include <filesystem>
#include <set>

#include <fcntl.h>
#include <unistd.h>

#include "captures/layout.h"
#include "core/error.h"
#include "io/mapped_file.h"
#include "io/output_file.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

JournalEntry entry_from(const Json& line) {
  return {line.at("segment"), line.at("examples"), line.at("rows"), line.at("tokens")};
}

}  // namespace

void Journal::create(const std::string& folder, const Manifest& manifest) {
  write_file(folder + "/" + layout::kManifestFile, to_json(manifest).dump(1) + "\n");
}

bool Journal::exists(const std::string& folder) {
  return fs::exists(folder + "/" + layout::kManifestFile);
}

Journal::Journal(const std::string& folder) : folder_(folder) {
  const auto path = folder + "/" + layout::kManifestFile;
  try {
    manifest_ = manifest_from_json(load_json(path));
    if (!fs::exists(folder + "/" + layout::kJournalFile)) return;
    const MappedFile file(folder + "/" + layout::kJournalFile);
    const auto text = file.text();
    for (std::size_t end = 0; (end = text.find('\n', valid_bytes_)) != std::string_view::npos;) {
      const auto line = parse_json(text.substr(valid_bytes_, end - valid_bytes_), file.path());
      if (line.value("complete", false))
        complete_ = true;
      else
        entries_.push_back(entry_from(line));
      valid_bytes_ = end + 1;
    }
  } catch (const Json::exception& error) {
    bad_input("{}: damaged ({}); start again with --overwrite", path, error.what());
  }
  for (const auto& entry : entries_)
    if (!fs::exists(segment_path(entry.segment)))
      bad_input("{}: missing, but the journal beside it names it; start again with --overwrite",
                segment_path(entry.segment));
}

std::int64_t Journal::examples() const {
  std::int64_t sum = 0;
  for (const auto& entry : entries_) sum += entry.examples;
  return sum;
}

std::int64_t Journal::rows() const {
  std::int64_t sum = 0;
  for (const auto& entry : entries_) sum += entry.rows;
  return sum;
}

std::int64_t Journal::tokens() const {
  std::int64_t sum = 0;
  for (const auto& entry : entries_) sum += entry.tokens;
  return sum;
}

void Journal::append(const Json& line) {
  const auto path = folder_ + "/" + layout::kJournalFile;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) system_error("write", path, errno);
  const auto text = line.dump() + "\n";
  const auto size = static_cast<ssize_t>(text.size());
  const auto at = static_cast<off_t>(valid_bytes_);
  errno = ENOSPC;  // what a write that stops short means
  const bool written = ::ftruncate(file, at) == 0 &&
                       ::pwrite(file, text.data(), text.size(), at) == size && ::fsync(file) == 0;
  const int error = errno;
  ::close(file);
  if (!written) system_error("write", path, error);
  valid_bytes_ += text.size();
}

void Journal::add(const JournalEntry& entry) {
  append({{"segment", entry.segment},
          {"examples", entry.examples},
          {"rows", entry.rows},
          {"tokens", entry.tokens}});
  entries_.push_back(entry);
}

void Journal::mark_complete() {
  append({{"complete", true}});
  complete_ = true;
}

void Journal::remove_strays() const {
  std::set<std::string> named;
  for (const auto& entry : entries_) named.insert(entry.segment);
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const auto name = entry.path().filename().string();
    const bool working_file =
        name.find(layout::kSegmentSuffix) != std::string::npos || name.ends_with(".tmp");
    if (working_file && !named.contains(name)) fs::remove(entry.path());
  }
}

}  // namespace qkscope
