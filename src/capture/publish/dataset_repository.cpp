#include "capture/publish/dataset_repository.h"

#include <algorithm>
#include <optional>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "input/hub/http.h"

namespace qkscope {
namespace {

constexpr std::size_t kFilesPerRequest = 256;  // upper limit of the Hub
constexpr std::size_t kSampleBytes = 512;      // sent so that the Hub can tell text from binary

// Returns the line of a commit request (NDJSON) that contains one small file.
Json make_commit_line(const std::string& path, std::string_view content) {
  return {{"key", "file"},
          {"value",
           {{"path", path},
            {"encoding", "base64"},
            {"content", encode_base64(std::as_bytes(std::span(content)))}}}};
}

// ---- Git LFS ----

constexpr std::size_t kFilesPerLfsRequest = 100;
constexpr const char* kLfsJson = "application/vnd.git-lfs+json";

// Instructions from the LFS server for uploading one file.
struct UploadAction {
  std::string upload;                         // upload URL, or completion URL of a multipart upload
  std::string verify;                         // URL to confirm the upload, or ""
  std::map<std::int64_t, std::string> parts;  // URL by part number
  std::uint64_t chunk = 0;                    // bytes per part
};

struct PlannedUpload {
  FileToPublish file;
  UploadAction action;
};

std::string action_url(const Json& actions, const char* name) {
  const auto action = actions.find(name);
  if (action == actions.end() || !action->is_object()) return "";
  return action->value("href", "");
}

// Parses the upload instructions for a file; nullopt if the LFS server already has its content.
std::optional<UploadAction> parse_upload_action(const Json& object, const FileToPublish& file) {
  if (object.contains("error"))
    throw_failure("{}: the storage refuses it: {}", file.path, quote_text(object["error"].dump()));
  const auto actions = object.find("actions");
  if (actions == object.end() || !actions->is_object()) return {};
  UploadAction action;
  action.upload = action_url(*actions, "upload");
  action.verify = action_url(*actions, "verify");
  if (action.upload.empty()) return {};
  const auto& upload = (*actions)["upload"];
  const Json header =
      upload.contains("header") && upload["header"].is_object() ? upload["header"] : Json::object();
  if (!header.contains("chunk_size")) return action;
  const auto& chunk = header["chunk_size"];
  action.chunk = static_cast<std::uint64_t>(std::max<std::int64_t>(
      0, parse_integer(chunk.is_string() ? chunk.get<std::string>() : chunk.dump(), "chunk_size")));
  for (const auto& [name, address] : header.items())
    if (address.is_string() && !name.empty() &&
        name.find_first_not_of("0123456789") == std::string::npos)
      action.parts[parse_integer(name, "part")] = address.get<std::string>();
  if (action.chunk == 0 || action.parts.size() != (file.size + action.chunk - 1) / action.chunk)
    throw_failure("{}: the storage asks for {} parts of {} bytes for {} bytes", file.path,
                  action.parts.size(), action.chunk, file.size);
  return action;
}

HttpRequest make_lfs_request(const Url& url, const Json& body) {
  auto request = make_post_request(url, body);
  request.headers = {{"Accept", kLfsJson}, {"Content-Type", kLfsJson}};
  return request;
}

std::vector<PlannedUpload> request_upload_actions(const HubBranch& target,
                                                  std::span<const FileToPublish> files) {
  const auto& [client, repository, branch] = target;
  Json objects = Json::array();
  std::map<std::string, const FileToPublish*> by_sum;
  for (const auto& file : files) {
    objects.push_back({{"oid", file.sha256}, {"size", file.size}});
    by_sum[file.sha256] = &file;
  }
  const auto url = client.make_url(repository.web_path() + ".git/info/lfs/objects/batch");
  const auto response = client.send(make_lfs_request(url, {{"operation", "upload"},
                                                           {"transfers", {"basic", "multipart"}},
                                                           {"hash_algo", "sha256"},
                                                           {"ref", {{"name", branch}}},
                                                           {"objects", objects}}));
  if (!response.ok()) throw_response_error(client, response, repository, RepositoryAccess::write);
  const auto answer = parse_response(response, url);
  if (!answer.is_object() || !answer.contains("objects") || !answer["objects"].is_array())
    throw_failure("{}: expected a list of objects", url.without_query());
  std::vector<PlannedUpload> uploads;
  parse_with_url_in_errors(url, [&] {
    for (const auto& object : answer["objects"]) {
      const auto found = by_sum.find(object.value("oid", ""));
      if (found == by_sum.end()) continue;
      if (auto action = parse_upload_action(object, *found->second))
        uploads.push_back({*found->second, std::move(*action)});
    }
  });
  return uploads;
}

class FileUploader {
 public:
  FileUploader(const HubClient& client, const PlannedUpload& upload,
               std::function<void(std::uint64_t)> progress)
      : client_(client), upload_(upload), progress_(std::move(progress)) {}

  void upload() {
    progress_(0);
    if (upload_.action.parts.empty()) put(upload_.action.upload, 0, upload_.file.size);
    Json parts = Json::array();
    std::uint64_t offset = 0;
    for (const auto& [number, address] : upload_.action.parts) {
      const auto size = std::min(upload_.action.chunk, upload_.file.size - offset);
      const auto etag = put(address, offset, size).header("etag");
      if (etag.empty())
        throw_failure("{}: the storage does not confirm part {}", upload_.file.path, number);
      parts.push_back({{"partNumber", number}, {"etag", etag}});
      offset += size;
    }
    if (!parts.empty())
      post(upload_.action.upload, {{"oid", upload_.file.sha256}, {"parts", parts}});
    if (!upload_.action.verify.empty())
      post(upload_.action.verify, {{"oid", upload_.file.sha256}, {"size", upload_.file.size}});
    progress_(upload_.file.size);
  }

 private:
  HttpResponse put(const std::string& address, std::uint64_t offset, std::uint64_t size) {
    HttpRequest request{.method = "PUT", .url = storage_url(address)};
    request.upload = {.path = upload_.file.source, .offset = offset, .size = size};
    request.sent = [&, offset](std::uint64_t bytes) { progress_(offset + bytes); };
    return send_or_throw(request);
  }

  void post(const std::string& address, const Json& body) {
    send_or_throw(make_lfs_request(storage_url(address), body));
  }

  // The URL comes from the Hub, so a malformed URL is a failure and not bad input.
  Url storage_url(const std::string& address) const {
    return parse_with_url_in_errors(client_.make_url(""), [&] {
      auto url = parse_url(address);
      refuse_plain_http(url, "the storage's address");
      return url;
    });
  }

  HttpResponse send_or_throw(const HttpRequest& request) {
    auto response = client_.send(request);
    if (!response.ok())
      throw_failure("{}: {} answers with status {}; the same command continues the upload",
                    upload_.file.path, request.url.without_query(), response.status);
    return response;
  }

  const HubClient& client_;
  const PlannedUpload& upload_;
  std::function<void(std::uint64_t)> progress_;
};

}  // namespace

void ensure_repository(const HubClient& client, const Repository& repository, bool private_repo) {
  const auto url = client.make_url(repository.api_path());
  const auto there = client.send({.url = url});
  if (there.ok()) {
    const auto info = parse_response(there, url);
    const bool hidden = parse_with_url_in_errors(
        url, [&] { return info.is_object() && info.value("private", false); });
    if (private_repo && !hidden)
      reject(
          "{}: a private repository is asked for, but it exists and is public; choose another "
          "name, or make it private at {}",
          repository.id, client.make_url(repository.web_path() + "/settings").to_string());
    return;
  }
  if (there.status != 404 && there.status != 401)
    throw_response_error(client, there, repository, RepositoryAccess::read);
  const auto slash = repository.id.find('/');
  Json settings = {{"type", "dataset"},
                   {"name", repository.id.substr(slash + 1)}};  // npos + 1 is 0: the whole id
  if (slash != std::string::npos) settings["organization"] = repository.id.substr(0, slash);
  if (private_repo) settings["visibility"] = "private";
  const auto created =
      client.send(make_post_request(client.make_url("/api/repos/create"), settings));
  if (created.status == 409) return;  // another process created the repository, or it is private
  if (!created.ok()) throw_response_error(client, created, repository, RepositoryAccess::write);
  log::info("made the {} dataset repository {}", private_repo ? "private" : "public",
            repository.id);
}

Url HubBranch::api_url(const std::string& endpoint) const {
  return client.make_url(
      fmt::format("{}/{}/{}", repository.api_path(), endpoint, percent_encode(branch)));
}

void ensure_branch(const HubBranch& target) {
  const auto& [client, repository, branch] = target;
  const auto branches = fetch_branches(client, repository);
  if (std::ranges::find(branches, branch) != branches.end()) return;
  const auto made =
      client.send(make_post_request(target.api_url("branch"), {{"startingPoint", "main"}}));
  if (!made.ok() && made.status != 409)
    throw_response_error(client, made, repository, RepositoryAccess::write);
}

void fetch_upload_modes(const HubBranch& target, std::vector<FileToPublish>& files) {
  const auto url = target.api_url("preupload");
  std::map<std::string, std::string> modes;
  for (std::size_t begin = 0; begin < files.size(); begin += kFilesPerRequest) {
    Json list = Json::array();
    for (std::size_t i = begin; i < std::min(begin + kFilesPerRequest, files.size()); ++i) {
      const MappedFile content(files[i].source);
      const auto sample = content.text().substr(0, kSampleBytes);
      list.push_back({{"path", files[i].path},
                      {"size", files[i].size},
                      {"sample", encode_base64(std::as_bytes(std::span(sample)))}});
    }
    const auto answer = target.client.post_json(target.repository, url, {{"files", list}});
    if (!answer.is_object() || !answer.contains("files") || !answer["files"].is_array())
      throw_failure("{}: expected a list of files", url.without_query());
    parse_with_url_in_errors(url, [&] {
      for (const auto& file : answer["files"]) {
        if (file.value("shouldIgnore", false))
          throw_failure(
              "{}: the repository's .gitignore leaves out {}; change it and publish again",
              target.repository.id, quote_text(file.value("path", "")));
        modes[file.value("path", "")] = file.value("uploadMode", "");
      }
    });
  }
  for (auto& file : files) {
    if (modes[file.path] != "lfs" && modes[file.path] != "regular")
      throw_failure("{}: the Hub does not say how to send {}", url.without_query(), file.path);
    file.large = modes[file.path] == "lfs" && file.size > 0;
  }
}

HttpResponse send_commit(const HubBranch& target, const HubCommit& commit) {
  std::string lines;
  const auto add = [&](const Json& line) {
    lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  };
  const Json header = {
      {"summary", commit.message}, {"description", ""}, {"parentCommit", commit.parent}};
  add({{"key", "header"}, {"value", header}});
  for (const auto& file : commit.files) {
    const Json content = {
        {"path", file.path}, {"algo", "sha256"}, {"oid", file.sha256}, {"size", file.size}};
    add(file.large ? Json{{"key", "lfsFile"}, {"value", content}}
                   : make_commit_line(file.path, MappedFile(file.source).text()));
  }
  for (const auto& [path, text] : commit.texts) add(make_commit_line(path, text));
  for (const auto& path : commit.removed)
    add({{"key", "deletedFile"}, {"value", {{"path", path}}}});
  const auto url = target.api_url("commit");
  auto response = target.client.send_once({.method = "POST",
                                           .url = url,
                                           .headers = {{"Content-Type", "application/x-ndjson"}},
                                           .body = std::move(lines)});
  const bool open = is_retryable(response) || response.status == 409 || response.status == 412;
  if (response.ok() || open) return response;
  if (response.status == 0) throw_connection_error(response, url);
  throw_response_error(target.client, response, target.repository, RepositoryAccess::write);
}

void upload_large_files(const HubBranch& target, const std::vector<FileToPublish>& files,
                        bool quiet) {
  TransferProgress meter("upload " + target.repository.id, to_vector(files, &FileToPublish::size),
                         quiet);
  // Upload URLs expire, so request them for a few files at a time.
  for (std::size_t begin = 0; begin < files.size(); begin += kFilesPerLfsRequest) {
    const auto count = std::min(kFilesPerLfsRequest, files.size() - begin);
    const auto some = std::span(files).subspan(begin, count);
    const auto uploads = request_upload_actions(target, some);
    std::map<std::string, std::size_t> index;  // index in `files` by path
    for (std::size_t i = 0; i < count; ++i) index[some[i].path] = begin + i;
    run_transfers(uploads.size(), [&](std::size_t i, const std::atomic<bool>& failed) {
      const auto at = index.at(uploads[i].file.path);
      FileUploader(target.client, uploads[i], [&](std::uint64_t bytes) {
        if (failed) throw_failure("stopped after another file failed");
        meter.update(at, bytes);
      }).upload();
    });
    for (std::size_t i = begin; i < begin + count; ++i) meter.update(i, files[i].size);
  }
}

}  // namespace qkscope
