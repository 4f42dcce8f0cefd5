#include "texts/corpus_files.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.h"
#include "io/folder.h"
#include "io/mapped_file.h"
#include "texts/split_files.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

using Open = RecordReaderPointer (*)(const std::string&, const RecordColumns&);
// How to open each of kDataEndings.
constexpr std::array<Open, kDataEndings.size()> kOpen = {
    open_parquet, open_json_lines, open_json_lines, open_json_array, open_csv, open_text};

// Every file below the folder, relative to it. Hidden folders are passed by.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; at != end; at.increment(error)) {
    if (error) system_error("list the folder", folder.string(), error.value());
    std::error_code ignored;
    const bool hidden = at->path().filename().string().starts_with('.');
    if (at->is_directory(ignored) && hidden) at.disable_recursion_pending();
    if (at->is_regular_file(ignored))
      files.push_back(at->path().lexically_relative(folder).string());
  }
  if (error) system_error("list the folder", folder.string(), error.value());
  return files;
}

}  // namespace

std::vector<std::string> find_corpus_files(const CorpusOptions& options) {
  const fs::path path = options.path;
  if (!path_exists(options.path))
    bad_input("{}: no such file or folder (a dataset of the Hub must be downloaded first)",
              options.path);
  if (!is_folder(options.path)) return {options.path};
  const auto card = (path / "README.md").string();
  auto files = choose_split_files(files_below(path),
                                  path_exists(card) ? std::string(MappedFile(card).text()) : "",
                                  options, options.path);
  for (auto& file : files) file = (path / file).string();
  return files;
}

RecordReaderPointer open_records(const std::string& path, const RecordColumns& columns) {
  const auto* const ending =
      std::find_if(kDataEndings.begin(), kDataEndings.end(),
                   [&](std::string_view known) { return path.ends_with(known); });
  if (ending == kDataEndings.end())
    bad_input("{}: what kind of file is this? Known are .parquet, .jsonl, .json, .csv and .txt",
              path);
  return kOpen[static_cast<std::size_t>(ending - kDataEndings.begin())](path, columns);
}

}  // namespace qkscope
