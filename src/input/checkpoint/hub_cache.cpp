#include "input/checkpoint/hub_cache.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "input/checkpoint/gguf.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxIdLength = 96;
constexpr std::size_t kMinCommitPrefix = 7;
constexpr std::size_t kCommitLength = 40;

bool is_commit_prefix(const std::string& text) {
  return text.size() >= kMinCommitPrefix &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

fs::path expand_home(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  return fs::path(environment_variable("HOME")) /
         path.substr(std::min<std::size_t>(2, path.size()));
}

std::vector<std::string> list_subfolders(const fs::path& folder) {
  if (!is_folder(folder)) return {};
  auto names = entry_names(folder);
  std::erase_if(names, [&](const std::string& name) { return !is_folder(folder / name); });
  return names;
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::string read_ref(const fs::path& ref) {
  const MappedFile file(ref.string());
  return std::string(file.text().substr(0, file.text().find_first_of("\r\n ")));
}

// Lists the cached branches and tags, then the cached commits, for an error message.
std::string format_revisions(const fs::path& repository) {
  std::vector<std::string> names;
  for (const auto& [name, commit] : cached_refs(repository.string())) names.push_back(name);
  for (const auto& commit : list_subfolders(repository / "snapshots")) names.push_back(commit);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::string download_command(RepositoryKind kind, const std::string& id,
                             const std::string& revision) {
  return fmt::format("qkscope hub download {}{}{}", id,
                     kind == RepositoryKind::dataset ? " --dataset" : "",
                     revision == "main" ? "" : " --revision " + revision);
}

// Returns the cached commits that are equal to `revision` or start with it.
std::vector<std::string> matching_commits(const fs::path& repository, const std::string& revision) {
  auto commits = list_subfolders(repository / "snapshots");
  if (std::ranges::find(commits, revision) != commits.end()) return {revision};
  const bool prefix = is_commit_prefix(revision);
  std::erase_if(
      commits, [&](const std::string& commit) { return !prefix || !commit.starts_with(revision); });
  return commits;
}

// Suggests the cached model id that is closest to a misspelled one.
std::string suggest_model(const std::string& id, const fs::path& cache) {
  std::vector<std::string> ids;
  for (const auto& name : list_subfolders(cache))
    if (const auto found = parse_cache_folder_name(name);
        found && found->kind == RepositoryKind::model)
      ids.push_back(found->id);
  const auto near = closest_spelling(id, ids);
  return near.empty() ? "" : fmt::format(" (the cache holds {})", near);
}

// Returns the snapshot folder of a revision. Throws a bad-input error if it is not cached; the
// error says `what_is_missing` if the cache has no revision of the repository.
std::string find_snapshot(RepositoryKind kind, const std::string& id, const std::string& revision,
                          const char* what_is_missing) {
  const fs::path folder = repository_cache_folder(kind, id);
  const auto download = download_command(kind, id, revision);
  if (!is_folder(folder))
    reject(
        "{}: {} in the Hugging Face cache: looked for {}{}; download it with '{}', or set HF_HOME "
        "or HF_HUB_CACHE to the cache that has it",
        id, what_is_missing, folder.string(),
        kind == RepositoryKind::model ? suggest_model(id, folder.parent_path()) : "", download);
  const auto path_of = [&](const std::string& commit) {
    return (folder / "snapshots" / commit).string();
  };
  if (const auto ref = folder / "refs" / revision; is_file(ref)) {
    const auto commit = read_ref(ref);
    // The commit in a ref file must not lead outside the snapshots folder.
    if (commit.empty() || commit.front() == '.' ||
        commit.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos)
      reject("{}: found {}, expected a commit; remove the file and run '{}'", ref.string(),
             quote_text(commit), download);
    if (is_folder(path_of(commit))) return path_of(commit);
    reject(
        "{}: revision {} is commit {}, which is not in the cache: looked for {}; revisions "
        "there: {}; download it with '{}'",
        id, quote_text(revision), commit, path_of(commit), format_revisions(folder), download);
  }
  const auto matches = matching_commits(folder, revision);
  if (matches.size() == 1) return path_of(matches.front());
  if (matches.size() > 1)
    reject("{}: the revision {} stands for several commits in the cache: {}; give more digits", id,
           quote_text(revision), fmt::join(matches, ", "));
  reject(
      "{}: revision {} is not in the cache: looked for {} and {}; revisions there: {}; download "
      "it with '{}'",
      id, quote_text(revision), (folder / "refs" / revision).string(), path_of(revision),
      format_revisions(folder), download);
}

}  // namespace

std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_repository_id(const std::string& id) {
  const auto parts = split(id, '/');
  if (id.size() > kMaxIdLength || parts.size() > 2) return false;
  if (id.find("..") != std::string::npos || id.find("--") != std::string::npos) return false;
  const auto is_id_character = [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.');
  };
  return std::ranges::all_of(parts, [&](const std::string& part) {
    return !part.empty() && std::ranges::all_of(part, is_id_character) && part.front() != '.' &&
           part.front() != '-' && part.back() != '.' && part.back() != '-';
  });
}

bool is_normalized_relative_path(const std::string& path) {
  return std::ranges::none_of(split(path, '/'), [](const std::string& part) {
    return part.empty() || part == "." || part == "..";
  });
}

bool is_valid_revision(const std::string& revision) {
  return revision.find('\0') == std::string::npos && is_normalized_relative_path(revision);
}

bool is_commit_hash(const std::string& text) {
  return text.size() == kCommitLength && is_commit_prefix(text);
}

std::string hugging_face_home() {
  if (const auto home = environment_variable("HF_HOME"); !home.empty())
    return expand_home(home).string();
  if (const auto cache = environment_variable("XDG_CACHE_HOME"); !cache.empty())
    return (expand_home(cache) / "huggingface").string();
  if (environment_variable("HOME").empty())
    reject(
        "cannot tell where the Hugging Face cache is: none of HF_HUB_CACHE, HF_HOME, "
        "XDG_CACHE_HOME and HOME is set; set HF_HUB_CACHE, or give a local folder");
  return (expand_home("~") / ".cache" / "huggingface").string();
}

std::string hub_cache_folder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const auto cache = environment_variable(name); !cache.empty())
      return expand_home(cache).string();
  return (fs::path(hugging_face_home()) / "hub").string();
}

std::string repository_cache_folder(RepositoryKind kind, const std::string& id) {
  std::string folder = kind == RepositoryKind::model ? "models" : "datasets";
  for (const auto& part : split(id, '/')) folder += "--" + part;
  return (fs::path(hub_cache_folder()) / folder).string();
}

std::optional<RepositoryName> parse_cache_folder_name(const std::string& folder_name) {
  const bool model = folder_name.starts_with("models--");
  if (!model && !folder_name.starts_with("datasets--")) return {};
  auto id = folder_name.substr(folder_name.find("--") + 2);
  if (const auto cut = id.find("--"); cut != std::string::npos) id.replace(cut, 2, "/");
  if (!is_repository_id(id)) return {};
  return RepositoryName{model ? RepositoryKind::model : RepositoryKind::dataset, id};
}

std::map<std::string, std::string> cached_refs(const std::string& repository_cache_folder) {
  std::map<std::string, std::string> found;
  const auto refs = fs::path(repository_cache_folder) / "refs";
  if (!is_folder(refs)) return found;
  for (const auto& entry : fs::recursive_directory_iterator(refs))
    if (is_file(entry.path()))
      found[entry.path().lexically_relative(refs).string()] = read_ref(entry.path());
  return found;
}

std::string cached_commit(RepositoryKind kind, const std::string& id, const std::string& revision) {
  const fs::path repository = repository_cache_folder(kind, id);
  if (const auto ref = repository / "refs" / revision; is_file(ref)) {
    const auto commit = read_ref(ref);
    return is_commit_hash(commit) ? commit : "";
  }
  const auto matches = matching_commits(repository, revision);
  return matches.size() == 1 ? matches.front() : "";
}

std::string resolve_checkpoint_path(const std::string& path_or_id, const std::string& revision) {
  const auto& id = path_or_id;
  if (is_folder(id) || !find_gguf_file(id).empty()) return id;
  if (path_exists(id))
    reject("{}: is a file; expected a checkpoint folder, a GGUF file or a model id", id);
  if (id.ends_with(".gguf")) reject("{}: the file does not exist", id);
  if (!is_repository_id(id))
    reject(
        "{}: no such folder, and not a model id, which is 'org/name' or 'name' of letters, digits, "
        "'-', '_' and '.'",
        quote_text(id));
  const std::string wanted = revision.empty() ? "main" : revision;
  if (!is_valid_revision(wanted))
    reject("{}: {} is not a revision; expected a branch, a tag or a commit", id,
           quote_text(wanted));
  return find_snapshot(RepositoryKind::model, id, wanted, "neither a local folder nor a model");
}

std::string resolve_dataset_path(const std::string& path_or_id) {
  if (path_exists(path_or_id) || !is_repository_id(path_or_id)) return path_or_id;
  return find_snapshot(RepositoryKind::dataset, path_or_id, "main",
                       "no such file or folder, and no such dataset");
}

}  // namespace qkscope
