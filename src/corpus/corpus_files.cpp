#include "corpus/corpus_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include "core/error.h"
#include "core/log.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

struct Format {
  std::string_view ending;
  RecordReaderPointer (*open)(const std::string&, const RecordColumns&);
};
// A folder with several kinds of files is read by the first kind in this list.
constexpr std::array<Format, 6> kFormats = {{{".parquet", open_parquet},
                                             {".jsonl", open_json_lines},
                                             {".ndjson", open_json_lines},
                                             {".json", open_json_array},
                                             {".csv", open_csv},
                                             {".txt", open_text}}};

const Format* format_of(const std::string& path) {
  const auto found = std::find_if(kFormats.begin(), kFormats.end(), [&](const Format& format) {
    return path.ends_with(format.ending);
  });
  return found == kFormats.end() ? nullptr : &*found;
}

// "train.parquet", "train-00000-of-00002.parquet", "train_0.jsonl", but not "training.csv".
bool belongs_to(const fs::path& file, const std::string& split) {
  const std::string name = file.filename().string();
  return name.starts_with(split) && name.size() > split.size() &&
         std::isalnum(static_cast<unsigned char>(name[split.size()])) == 0;
}

std::vector<fs::path> data_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_regular_file() && format_of(entry.path().string()) != nullptr &&
        !entry.path().filename().string().starts_with('.')) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The files of the first format that has any.
std::vector<std::string> of_one_format(const std::vector<fs::path>& files) {
  std::vector<std::string> chosen;
  for (const Format& format : kFormats) {
    for (const fs::path& file : files) {
      if (file.string().ends_with(format.ending)) chosen.push_back(file.string());
    }
    if (!chosen.empty()) break;
  }
  if (chosen.size() < files.size()) {
    log::warn("{}: reading the {} files of the kind of {}, not the {} others",
              files.front().parent_path().string(), chosen.size(), chosen.front(),
              files.size() - chosen.size());
  }
  return chosen;
}

[[noreturn]] void no_files(const fs::path& base, const std::string& split) {
  std::string there;
  int listed = 0;
  for (const auto& entry : fs::recursive_directory_iterator(base)) {
    if (format_of(entry.path().string()) == nullptr) continue;
    if (++listed > 10) break;
    there += (there.empty() ? "" : ", ") + fs::relative(entry.path(), base).string();
  }
  bad_input("{}: no data files for the split '{}'. {}", base.string(), split,
            there.empty() ? "There are no .parquet, .jsonl, .json, .csv or .txt files in it."
                          : "The data files in it: " + there);
}

std::vector<std::string> find_in_folder(const fs::path& base, const std::string& split) {
  for (const fs::path& folder : {base / "data", base}) {
    std::vector<fs::path> files = data_files(folder);
    std::erase_if(files, [&](const fs::path& file) { return !belongs_to(file, split); });
    if (!files.empty()) return of_one_format(files);
  }
  for (const fs::path& folder : {base / "data" / split, base / split}) {
    const std::vector<fs::path> files = data_files(folder);
    if (!files.empty()) return of_one_format(files);
  }
  // Files whose names say nothing of splits are the train split.
  const std::vector<fs::path> files = data_files(base);
  const bool named = std::any_of(files.begin(), files.end(), [](const fs::path& file) {
    return belongs_to(file, "test") || belongs_to(file, "validation");
  });
  if (files.empty() || named || split != "train") no_files(base, split);
  return of_one_format(files);
}

}  // namespace

std::vector<std::string> find_corpus_files(const CorpusOptions& options) {
  const fs::path path = options.path;
  if (!fs::exists(path)) {
    bad_input("{}: no such file or folder (a dataset of the Hub must be downloaded first)",
              options.path);
  }
  if (!fs::is_directory(path)) return {options.path};
  if (!options.name) return find_in_folder(path, options.split);
  for (const fs::path& base : {path / *options.name, path / "data" / *options.name}) {
    if (fs::is_directory(base)) return find_in_folder(base, options.split);
  }
  std::string folders;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (!entry.is_directory()) continue;
    folders += (folders.empty() ? "" : ", ") + entry.path().filename().string();
  }
  bad_input("{}: there is no configuration '{}'; the folders in it: {}", options.path,
            *options.name, folders.empty() ? "none" : folders);
}

RecordReaderPointer open_records(const std::string& path, const RecordColumns& columns) {
  const Format* format = format_of(path);
  if (format == nullptr) {
    bad_input("{}: what kind of file is this? Known are .parquet, .jsonl, .json, .csv and .txt",
              path);
  }
  return format->open(path, columns);
}

}  // namespace qkscope
