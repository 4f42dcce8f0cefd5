#include "capture/publish/dataset_repository.h"

#include <algorithm>
#include <map>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/text.h"
#include "base/io/json.h"
#include "base/io/mapped_file.h"

namespace qkscope {
namespace {

constexpr std::size_t kFilesPerRequest = 256;  // upper limit of the Hub
constexpr std::size_t kSampleBytes = 512;      // sent so that the Hub can tell text from binary

HttpRequest json_post(const Url& url, const Json& body) {
  return {.method = "POST",
          .url = url,
          .headers = {{"Content-Type", "application/json"}},
          .body = body.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

Json creation(const Repository& repository, bool private_repo) {
  const auto slash = repository.id.find('/');
  Json settings = {{"type", "dataset"},
                   {"name", repository.id.substr(slash + 1)}};  // npos + 1 is 0
  if (slash != std::string::npos) settings["organization"] = repository.id.substr(0, slash);
  if (private_repo) settings["visibility"] = "private";
  return settings;
}

std::string sample_of(const LocalFile& file) {
  const MappedFile content(file.source);
  return encode_base64(std::as_bytes(std::span(content.text().substr(0, kSampleBytes))));
}

Json text_addition(const std::string& path, std::string_view content) {
  return {{"key", "file"},
          {"value",
           {{"path", path},
            {"encoding", "base64"},
            {"content", encode_base64(std::as_bytes(std::span(content)))}}}};
}

// One line of the commit request (NDJSON): a large file is named by its SHA-256, a small file is
// inlined.
Json addition(const LocalFile& file) {
  if (file.large)
    return {{"key", "lfsFile"},
            {"value",
             {{"path", file.path}, {"algo", "sha256"}, {"oid", file.sha256}, {"size", file.size}}}};
  return text_addition(file.path, MappedFile(file.source).text());
}

}  // namespace

void ensure_repository(const HubClient& client, const Repository& repository, bool private_repo) {
  const auto url = client.at(repository.api_path());
  const auto there = client.send({.url = url});
  if (there.ok()) {
    const auto info = parse_response(there, url);
    const bool hidden = translate_response_errors(
        url, [&] { return info.is_object() && info.value("private", false); });
    if (private_repo && !hidden)
      bad_input(
          "{}: a private repository is asked for, but it exists and is public; choose another "
          "name, "
          "or make it private at {}",
          repository.id, client.at(repository.page_path() + "/settings").to_string());
    return;
  }
  if (there.status != 404 && there.status != 401)
    throw_refusal(client, there, repository, Access::read);
  const auto created =
      client.send(json_post(client.at("/api/repos/create"), creation(repository, private_repo)));
  if (created.status == 409) return;  // another process created the repository, or it is private
  if (!created.ok()) throw_refusal(client, created, repository, Access::write);
  log::info("made the {} dataset repository {}", private_repo ? "private" : "public",
            repository.id);
}

void ensure_branch(const HubClient& client, const Repository& repository,
                   const std::string& branch) {
  const auto branches = fetch_branches(client, repository);
  if (std::find(branches.begin(), branches.end(), branch) != branches.end()) return;
  const auto url =
      client.at(fmt::format("{}/branch/{}", repository.api_path(), percent_encode(branch)));
  const auto made = client.send(json_post(url, {{"startingPoint", "main"}}));
  if (!made.ok() && made.status != 409) throw_refusal(client, made, repository, Access::write);
}

void choose_storage(const HubClient& client, const Repository& repository,
                    const std::string& branch, std::vector<LocalFile>& files) {
  const auto url =
      client.at(fmt::format("{}/preupload/{}", repository.api_path(), percent_encode(branch)));
  std::map<std::string, std::string> modes;
  for (std::size_t begin = 0; begin < files.size(); begin += kFilesPerRequest) {
    Json list = Json::array();
    for (std::size_t i = begin; i < std::min(begin + kFilesPerRequest, files.size()); ++i)
      list.push_back(
          {{"path", files[i].path}, {"size", files[i].size}, {"sample", sample_of(files[i])}});
    const auto answer = client.post_json(repository, url, {{"files", list}});
    if (!answer.is_object() || !answer.contains("files") || !answer["files"].is_array())
      failure("{}: expected a list of files", url.without_query());
    translate_response_errors(url, [&] {
      for (const auto& file : answer["files"]) {
        if (file.value("shouldIgnore", false))
          failure("{}: the repository's .gitignore leaves out {}; change it and publish again",
                  repository.id, in_quotes(file.value("path", "")));
        modes[file.value("path", "")] = file.value("uploadMode", "");
      }
    });
  }
  for (auto& file : files) {
    if (modes[file.path] != "lfs" && modes[file.path] != "regular")
      failure("{}: the Hub does not say how to send {}", url.without_query(), file.path);
    file.large = modes[file.path] == "lfs" && file.size > 0;
  }
}

HttpResponse send_commit(const HubClient& client, const Repository& repository,
                         const std::string& branch, const Commit& commit) {
  const Json header = {
      {"summary", commit.message}, {"description", ""}, {"parentCommit", commit.parent}};
  auto lines = Json{{"key", "header"}, {"value", header}}.dump(-1, ' ', false,
                                                               Json::error_handler_t::replace) +
               "\n";
  for (const auto& file : commit.files) lines += addition(file).dump() + "\n";
  for (const auto& [path, text] : commit.texts) lines += text_addition(path, text).dump() + "\n";
  for (const auto& path : commit.removed)
    lines += Json{{"key", "deletedFile"}, {"value", {{"path", path}}}}.dump() + "\n";
  const auto url =
      client.at(fmt::format("{}/commit/{}", repository.api_path(), percent_encode(branch)));
  auto response = client.send_once({.method = "POST",
                                    .url = url,
                                    .headers = {{"Content-Type", "application/x-ndjson"}},
                                    .body = std::move(lines)});
  const bool open = is_retryable(response) || response.status == 409 || response.status == 412;
  if (response.ok() || open) return response;
  if (response.status == 0) throw_connection_error(response, url);
  throw_refusal(client, response, repository, Access::write);
}

}  // namespace qkscope
