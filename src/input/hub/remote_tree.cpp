#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "input/checkpoint/hub_cache.h"
#include "input/hub/client.h"

namespace qkscope {
namespace {

constexpr int kTreeFormat = 1;
constexpr std::size_t kLongestPath = 1000;
constexpr std::size_t kListed = 12;
// The Hub lists 1,000 files per page; the largest repositories have about 100,000 files.
constexpr std::size_t kMostPages = 1000;
constexpr std::size_t kMostFiles = 1'000'000;

bool is_hex(const std::string& text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string read_string_field(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<std::uint64_t> read_size_field(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_number_integer() || *found < 0) return {};
  return found->get<std::uint64_t>();
}

// Paths and hashes from the Hub become file names, so anything unexpected is rejected.
bool has_valid_path_and_hashes(const RemoteFile& file) {
  return is_safe_path(file.path) && is_hex(file.git_sha1, 40) &&
         (file.sha256.empty() || is_hex(file.sha256, 64));
}

std::optional<RemoteFile> parse_tree_entry(const Json& entry) {
  RemoteFile file;
  file.path = read_string_field(entry, "path");
  file.git_sha1 = read_string_field(entry, "oid");
  file.xet_hash = read_string_field(entry, "xetHash");
  auto size = read_size_field(entry, "size");
  if (entry.contains("lfs") && entry["lfs"].is_object()) {
    file.sha256 = read_string_field(entry["lfs"], "oid");
    size = read_size_field(entry["lfs"], "size");
    if (file.sha256.empty()) return {};
  }
  file.size = size.value_or(0);
  if (!size || !has_valid_path_and_hashes(file)) return {};
  return file;
}

// Parses the header: Link: <https://...?cursor=...>; rel="next"
std::string next_page_url(const HttpResponse& response) {
  const auto link = response.header("link");
  const auto next = link.find("rel=\"next\"");
  const auto begin = next == std::string::npos ? next : link.rfind('<', next);
  if (begin == std::string::npos) return "";
  const auto end = link.find('>', begin);
  return end == std::string::npos ? "" : link.substr(begin + 1, end - begin - 1);
}

void append_tree_page(const Json& page, const Url& url, RemoteTree& tree) {
  if (!page.is_array()) throw_failure("{}: expected a list of files", url.without_query());
  for (const auto& entry : page) {
    if (read_string_field(entry, "type") != "file") continue;
    auto file = parse_tree_entry(entry);
    if (!file)
      throw_failure("{}: the listing holds an entry that is not safe to store: {}",
                    url.without_query(),
                    quote_text(entry.dump(-1, ' ', true, Json::error_handler_t::replace)));
    tree.push_back(std::move(*file));
  }
}

[[noreturn]] void throw_unknown_revision(const HubClient& client, const Repository& repository,
                                         const std::string& revision) {
  const auto branches = fetch_branches(client, repository);
  const auto near = closest_spelling(revision, branches);
  reject("{} {}: the Hub has no revision {}{}; its branches: {}", repository.kind_name(),
         repository.id, quote_text(revision),
         near.empty() ? "" : fmt::format(" (did you mean {}?)", near),
         branches.empty() ? "" : format_name_list(branches, kListed));
}

std::string cached_file_list_path(const std::string& repository_cache_folder,
                                  const std::string& commit) {
  return repository_cache_folder + "/trees/" + commit + ".json";
}

}  // namespace

bool is_safe_path(const std::string& path) {
  return path.size() <= kLongestPath && is_normalized_relative_path(path) &&
         std::ranges::none_of(path,
                              [](unsigned char c) { return c < ' ' || c == 0x7f || c == '\\'; }) &&
         std::ranges::none_of(split(path, '/'),
                              [](const std::string& part) { return part.size() > 255; });
}

const RemoteFile* find_remote_file(const RemoteTree& tree, const std::string& path) {
  const auto found = std::ranges::find(tree, path, &RemoteFile::path);
  return found == tree.end() ? nullptr : &*found;
}

std::vector<std::string> list_tree_paths(const RemoteTree& tree) {
  return to_vector(tree, &RemoteFile::path);
}

std::string fetch_commit(const HubClient& client, const Repository& repository,
                         const std::string& revision) {
  const auto url = client.make_url(
      fmt::format("{}/revision/{}", repository.api_path(), percent_encode(revision)));
  const auto response = client.send({.url = url});
  if (response.status == 404 && response.header("x-error-code") == "RevisionNotFound")
    throw_unknown_revision(client, repository, revision);
  if (!response.ok()) throw_response_error(client, response, repository, RepositoryAccess::read);
  auto commit = read_string_field(parse_response(response, url), "sha");
  if (!is_commit_hash(commit))
    throw_failure("{}: found {}, expected a commit", url.without_query(), quote_text(commit));
  return commit;
}

RemoteTree fetch_tree(const HubClient& client, const Repository& repository,
                      const std::string& commit) {
  RemoteTree tree;
  auto url = client.make_url(fmt::format("{}/tree/{}?recursive=true&expand=false",
                                         repository.api_path(), percent_encode(commit)));
  std::set<std::string> seen;
  while (true) {
    if (!seen.insert(url.to_string()).second)
      throw_failure("{}: the pages of the listing lead round in a circle", url.without_query());
    if (seen.size() > kMostPages || tree.size() > kMostFiles)
      throw_failure("{}: the listing does not end after {} pages with {} files",
                    url.without_query(), seen.size() - 1, tree.size());
    const auto response = client.send({.url = url});
    if (!response.ok()) throw_response_error(client, response, repository, RepositoryAccess::read);
    parse_with_url_in_errors(url,
                             [&] { append_tree_page(parse_response(response, url), url, tree); });
    const auto next = next_page_url(response);
    if (next.empty()) break;
    url = parse_with_url_in_errors(url, [&] { return resolve_url(url, next); });
    if (!is_same_server(url, client.settings().endpoint))
      throw_failure("{}: the next page of a listing is on another server", url.without_query());
  }
  std::ranges::sort(tree, {}, &RemoteFile::path);
  return tree;
}

std::vector<std::string> fetch_branches(const HubClient& client, const Repository& repository) {
  const auto url = client.make_url(repository.api_path() + "/refs");
  const auto response = client.send({.url = url});
  if (!response.ok()) throw_response_error(client, response, repository, RepositoryAccess::read);
  const auto refs = parse_response(response, url);
  std::vector<std::string> names;
  if (refs.is_object() && refs.contains("branches") && refs["branches"].is_array())
    for (const auto& branch : refs["branches"]) names.push_back(read_string_field(branch, "name"));
  return names;
}

std::vector<std::string> list_branches(const RepositoryName& repository) {
  return translate_exceptions([&] {
    if (!is_repository_id(repository.id))
      reject("{}: not the name of a repository, which is 'org/name'", quote_text(repository.id));
    const HubClient client(hub_settings());
    if (client.settings().offline)
      reject("HF_HUB_OFFLINE is set: the Hub cannot be asked for the branches of {}",
             repository.id);
    return fetch_branches(client, Repository{repository});
  });
}

std::optional<RemoteTree> read_cached_file_list(const std::string& repository_cache_folder,
                                                const std::string& commit) {
  const auto path = cached_file_list_path(repository_cache_folder, commit);
  if (!path_exists(path)) return {};
  try {
    const Json json = load_json(path);
    if (!json.is_object() || json.value("format_version", 0) != kTreeFormat) return {};
    RemoteTree tree;
    for (const auto& [name, entry] : json.at("files").items()) {
      RemoteFile file{.path = name,
                      .size = 0,
                      .git_sha1 = read_string_field(entry, "blob_id"),
                      .sha256 = read_string_field(entry, "lfs_sha256"),
                      .xet_hash = read_string_field(entry, "xet_hash")};
      const auto size = read_size_field(entry, file.sha256.empty() ? "size" : "lfs_size");
      file.size = size.value_or(0);
      if (!size || !has_valid_path_and_hashes(file)) return {};
      tree.push_back(std::move(file));
    }
    std::ranges::sort(tree, {}, &RemoteFile::path);
    return tree;
  } catch (const Error&) {  // a damaged listing is downloaded again
    return {};
  } catch (const Json::exception&) {
    return {};
  }
}

void write_cached_file_list(const std::string& repository_cache_folder, const std::string& commit,
                            const RemoteTree& tree) {
  Json files = Json::object();
  for (const auto& file : tree) {
    Json entry = {{"size", file.size}, {"blob_id", file.git_sha1}};
    if (!file.sha256.empty()) {
      entry["lfs_sha256"] = file.sha256;
      entry["lfs_size"] = file.size;
    }
    if (!file.xet_hash.empty()) entry["xet_hash"] = file.xet_hash;
    files[file.path] = entry;
  }
  make_folders(repository_cache_folder + "/trees");
  write_file(cached_file_list_path(repository_cache_folder, commit),
             Json{{"format_version", kTreeFormat}, {"files", files}}.dump(
                 1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace qkscope
