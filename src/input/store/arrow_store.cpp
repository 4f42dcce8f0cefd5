#include "input/store/arrow_store.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>

#include "base/core/error.h"
#include "base/io/checksum.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"

namespace qkscope {
namespace {

constexpr std::int64_t kBufferBytes = std::int64_t{4} << 20;  // bytes per read or write
constexpr int kMaxDownloads = 4;  // downloads with a wrong checksum before giving up

StoredObject described(const arrow::fs::FileInfo& info, const std::string& name) {
  return {.name = name,
          .bytes = static_cast<std::uint64_t>(info.size()),
          .modified = std::chrono::duration<double>(info.mtime().time_since_epoch()).count()};
}

}  // namespace

ArrowStore::ArrowStore(StoreAddress address, std::shared_ptr<arrow::fs::FileSystem> files)
    : address_(std::move(address)), files_(std::move(files)) {}

std::string ArrowStore::path_of(const std::string& name) const {
  const auto base = address_.arrow_path();
  return name.empty() ? base : base + "/" + name;
}

std::optional<StoredObject> ArrowStore::find(const std::string& name) {
  const auto info = take(files_->GetFileInfo(path_of(name)), where(name));
  if (info.type() != arrow::fs::FileType::File) return {};
  return described(info, name);
}

std::optional<std::string> ArrowStore::read(const std::string& name) {
  const auto doing = where(name);
  const auto info = take(files_->GetFileInfo(path_of(name)), doing);
  if (info.type() != arrow::fs::FileType::File) return {};
  const auto input = take(files_->OpenInputFile(info), doing);
  const auto buffer = take(input->ReadAt(0, info.size()), doing);
  return buffer->ToString();
}

ObjectContent ArrowStore::fetch_once(const std::string& name, const std::string& file,
                                     const std::optional<ObjectContent>& expected) {
  const auto doing = where(name);
  const auto input = take(files_->OpenInputStream(path_of(name)), doing);
  OutputFile output(file);
  Checksum sum;
  while (true) {
    const auto piece = take(input->Read(kBufferBytes), doing);
    if (piece->size() == 0) break;
    const std::string_view bytes(*piece);
    sum.add(bytes);
    output.write(bytes);
  }
  const ObjectContent found{output.written(), checksum_text(sum.value())};
  if (!expected || found == *expected) output.commit();
  return found;
}

void ArrowStore::get(const std::string& name, const std::string& file,
                     const std::optional<ObjectContent>& expected) {
  for (int fetch = 1;; ++fetch) {
    const auto found = fetch_once(name, file, expected);
    if (!expected || found == *expected) return;
    if (fetch == kMaxDownloads)
      bad_input(
          "{}: is damaged: {} bytes with the checksum {}, expected {} bytes with {}; make it anew",
          where(name), found.bytes, found.checksum, expected->bytes, expected->checksum);
    std::this_thread::sleep_for(std::chrono::milliseconds(100 << fetch));
  }
}

ObjectContent ArrowStore::put(const std::string& name, const std::string& file) {
  const auto doing = where(name);
  const MappedFile content(file);
  const auto text = content.text();
  prepare(name);
  const auto output = take(files_->OpenOutputStream(path_of(name)), doing);
  Checksum sum;
  for (std::size_t at = 0; at < text.size(); at += kBufferBytes) {
    const auto piece = text.substr(at, kBufferBytes);
    sum.add(piece);
    check(output->Write(piece), doing);
  }
  check(output->Close(), doing);
  return {text.size(), checksum_text(sum.value())};
}

std::vector<StoredObject> ArrowStore::list(const std::string& prefix) {
  arrow::fs::FileSelector selector;
  selector.base_dir = path_of(prefix);
  selector.recursive = true;
  selector.allow_not_found = true;
  const auto found = take(files_->GetFileInfo(selector), where(prefix));
  const auto base = path_of("") + "/";
  std::vector<StoredObject> objects;
  for (const auto& info : found) {
    if (info.type() != arrow::fs::FileType::File || !info.path().starts_with(base)) continue;
    objects.push_back(described(info, info.path().substr(base.size())));
  }
  std::ranges::sort(objects, {}, &StoredObject::name);
  return objects;
}

}  // namespace qkscope
