#include <algorithm>
#include <map>
#include <optional>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/json.h"
#include "capture/publish/dataset_repository.h"
#include "input/hub/transfer.h"

namespace qkscope {
namespace {

constexpr std::size_t kFilesPerLfsRequest = 100;
constexpr const char* kLfsJson = "application/vnd.git-lfs+json";

// How the LFS storage wants one file to be uploaded.
struct UploadAction {
  std::string upload;                         // URL; for a multipart upload, of its completion
  std::string verify;                         // URL, or ""
  std::map<std::int64_t, std::string> parts;  // part number to URL
  std::uint64_t chunk = 0;                    // bytes per part
};

struct Upload {
  LocalFile file;
  UploadAction action;
};

std::string address_in(const Json& actions, const char* name) {
  const auto action = actions.find(name);
  if (action == actions.end() || !action->is_object()) return "";
  return action->value("href", "");
}

// Returns nullopt when the storage already has the content.
std::optional<UploadAction> read_action(const Json& object, const LocalFile& file) {
  if (object.contains("error"))
    failure("{}: the storage refuses it: {}", file.path, in_quotes(object["error"].dump()));
  const auto actions = object.find("actions");
  if (actions == object.end() || !actions->is_object()) return {};
  UploadAction action;
  action.upload = address_in(*actions, "upload");
  action.verify = address_in(*actions, "verify");
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
    failure("{}: the storage asks for {} parts of {} bytes for {} bytes", file.path,
            action.parts.size(), action.chunk, file.size);
  return action;
}

HttpRequest lfs_post(const Url& url, const Json& body) {
  return {.method = "POST",
          .url = url,
          .headers = {{"Accept", kLfsJson}, {"Content-Type", kLfsJson}},
          .body = body.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

std::vector<Upload> ask_storage(const HubClient& client, const Repository& repository,
                                const std::string& branch, std::span<const LocalFile> files) {
  Json objects = Json::array();
  std::map<std::string, const LocalFile*> by_sum;
  for (const auto& file : files) {
    objects.push_back({{"oid", file.sha256}, {"size", file.size}});
    by_sum[file.sha256] = &file;
  }
  const auto url = client.at(repository.page_path() + ".git/info/lfs/objects/batch");
  const auto response = client.send(lfs_post(url, {{"operation", "upload"},
                                                   {"transfers", {"basic", "multipart"}},
                                                   {"hash_algo", "sha256"},
                                                   {"ref", {{"name", branch}}},
                                                   {"objects", objects}}));
  if (!response.ok()) throw_refusal(client, response, repository, Access::write);
  const auto answer = parse_response(response, url);
  if (!answer.is_object() || !answer.contains("objects") || !answer["objects"].is_array())
    failure("{}: expected a list of objects", url.without_query());
  std::vector<Upload> uploads;
  translate_response_errors(url, [&] {
    for (const auto& object : answer["objects"]) {
      const auto found = by_sum.find(object.value("oid", ""));
      if (found == by_sum.end()) continue;
      if (auto action = read_action(object, *found->second))
        uploads.push_back({*found->second, std::move(*action)});
    }
  });
  return uploads;
}

class Sender {
 public:
  Sender(const HubClient& client, const Upload& upload, std::function<void(std::uint64_t)> progress)
      : client_(client), upload_(upload), progress_(std::move(progress)) {}

  void run() {
    progress_(0);
    if (upload_.action.parts.empty())
      put(upload_.action.upload, 0, upload_.file.size);
    else
      put_parts();
    if (!upload_.action.verify.empty())
      post(upload_.action.verify, {{"oid", upload_.file.sha256}, {"size", upload_.file.size}});
    progress_(upload_.file.size);
  }

 private:
  void put_parts() {
    Json parts = Json::array();
    std::uint64_t offset = 0;
    for (const auto& [number, address] : upload_.action.parts) {
      const auto size = std::min(upload_.action.chunk, upload_.file.size - offset);
      const auto etag = put(address, offset, size).header("etag");
      if (etag.empty())
        failure("{}: the storage does not confirm part {}", upload_.file.path, number);
      parts.push_back({{"partNumber", number}, {"etag", etag}});
      offset += size;
    }
    post(upload_.action.upload, {{"oid", upload_.file.sha256}, {"parts", parts}});
  }

  HttpResponse put(const std::string& address, std::uint64_t offset, std::uint64_t size) {
    HttpRequest request{.method = "PUT", .url = checked(address)};
    request.upload = {.path = upload_.file.source, .offset = offset, .size = size};
    request.sent = [&, offset](std::uint64_t bytes) { progress_(offset + bytes); };
    return sent(request);
  }

  void post(const std::string& address, const Json& body) {
    sent(lfs_post(checked(address), body));
  }

  // The URL comes from the Hub, so a malformed one is a failure of the Hub and not bad input.
  Url checked(const std::string& address) const {
    return translate_response_errors(client_.at(""), [&] {
      const auto url = parse_url(address);
      refuse_plain_http(url, "the storage's address");
      return url;
    });
  }

  HttpResponse sent(const HttpRequest& request) {
    auto response = client_.send(request);
    if (!response.ok())
      failure("{}: {} answers with status {}; the same command continues the upload",
              upload_.file.path, request.url.without_query(), response.status);
    return response;
  }

  const HubClient& client_;
  const Upload& upload_;
  std::function<void(std::uint64_t)> progress_;
};

}  // namespace

void upload_large_files(const HubClient& client, const Repository& repository,
                        const std::string& branch, const std::vector<LocalFile>& files,
                        bool quiet) {
  std::vector<std::uint64_t> sizes;
  for (const auto& file : files) sizes.push_back(file.size);
  TransferMeter meter("upload " + repository.id, sizes, quiet);
  // Upload URLs expire, so they are requested for a few files at a time.
  for (std::size_t begin = 0; begin < files.size(); begin += kFilesPerLfsRequest) {
    const auto count = std::min(kFilesPerLfsRequest, files.size() - begin);
    const auto some = std::span(files).subspan(begin, count);
    const auto uploads = ask_storage(client, repository, branch, some);
    std::map<std::string, std::size_t> index;  // by path
    for (std::size_t i = 0; i < count; ++i) index[some[i].path] = begin + i;
    run_transfers(uploads.size(), [&](std::size_t i, const std::atomic<bool>& failed) {
      const auto at = index.at(uploads[i].file.path);
      Sender(client, uploads[i], [&](std::uint64_t bytes) {
        if (failed) failure("stopped after another file failed");
        meter.update(at, bytes);
      }).run();
    });
    for (std::size_t i = begin; i < begin + count; ++i) meter.update(i, files[i].size);
  }
}

}  // namespace qkscope
