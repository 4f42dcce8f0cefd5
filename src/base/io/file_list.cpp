#include "base/io/file_list.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include <sys/stat.h>

#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "base/io/checksum.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr char kSize[] = "bytes";
constexpr char kChecksum[] = "xxh3";

// Reads the file in blocks, because pages of a mapped file would count as memory of the process.
std::string content_checksum(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_system_error("read", path, errno);
  Checksum checksum;
  std::string block(std::size_t{1} << 20, '\0');
  while (file.read(block.data(), std::ssize(block)) || file.gcount() > 0)
    checksum.add(std::string_view(block).substr(0, static_cast<std::size_t>(file.gcount())));
  if (file.bad()) throw_system_error("read", path, errno);
  return format_checksum(checksum.value());
}

}  // namespace

FileList make_file_list(const std::string& folder, const std::vector<std::string>& names) {
  auto records = parallel_map(names, [&](const std::string& name) {
    const auto path = folder + "/" + name;
    return FileListEntry{fs::file_size(path), content_checksum(path)};
  });
  FileList files;
  for (std::size_t i = 0; i < names.size(); ++i) files[names[i]] = std::move(records[i]);
  return files;
}

FileList make_file_list(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) names.push_back(entry.path().lexically_relative(folder).string());
  return make_file_list(folder, names);
}

Json to_json(const FileList& files) {
  Json json = Json::object();
  for (const auto& [name, record] : files)
    json[name] = {{kSize, record.size}, {kChecksum, record.checksum}};
  return json;
}

std::optional<FileList> parse_file_list(const Json& state, const std::string& where) {
  const auto list = state.find("files");
  if (list == state.end()) return {};
  FileList files;
  try {
    for (const auto& [name, item] : list->get<Json::object_t>())
      files[name] = item.is_number_integer()  // version 0.1 wrote sizes only
                        ? FileListEntry{item.get<std::uint64_t>(), ""}
                        : FileListEntry{item.at(kSize).get<std::uint64_t>(),
                                        item.at(kChecksum).get<std::string>()};
  } catch (const Json::exception& error) {
    reject("{}: the list of files is damaged ({})", where, error.what());
  }
  return files;
}

void check_file_sizes(const std::string& folder, const FileList& files, const std::string& advice) {
  for (const auto& [name, record] : files) {
    std::error_code error;
    const auto size = fs::file_size(fs::path(folder) / name, error);
    if (error) reject("{}/{}: is missing; {}", folder, name, advice);
    if (size != record.size)
      reject("{}/{}: has {} bytes, expected {}; {}", folder, name, size, record.size, advice);
  }
}

void check_file_content(const std::string& folder, const std::string& name,
                        const FileListEntry& record, const std::string& advice) {
  check_file_sizes(folder, {{name, record}}, advice);
  if (record.checksum.empty() || content_checksum(folder + "/" + name) == record.checksum) return;
  reject("{}/{}: damaged: its checksum differs from the one written with it; {}", folder, name,
         advice);
}

FileSnapshot::FileStamp FileSnapshot::read_stamp(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size),
          status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
}

void FileSnapshot::check_unchanged() const {
  for (const auto& [path, stamp] : stamps_)
    if (read_stamp(path) != stamp)
      reject("{}: changed while it was read; run the same command again", path);
}

}  // namespace qkscope
