// Store for s3:// addresses. Arrow reads, writes and lists. Conditional puts, which Arrow lacks,
// and removals, for which Arrow leaves placeholder objects, are sent with libcurl and signed with
// the credentials of Arrow's S3 client.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>
#include <random>
#include <span>

#include <arrow/filesystem/s3fs.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/hmac.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "input/checkpoint/hub_cache.h"
#include "input/hub/client.h"
#include "input/store/object_store.h"

namespace qkscope {
namespace {

using Sha256 = std::array<unsigned char, 32>;

// HMAC-SHA256 of RFC 2104.
Sha256 hmac_sha256(std::span<const unsigned char> key, std::string_view message) {
  Sha256 result;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(message.data()), message.size(), result.data(),
       nullptr);
  return result;
}

constexpr double kConnectSeconds = 20.0;
constexpr double kSilentSeconds = 30.0;  // without data, before a connection is closed

// Number of attempts per request: AWS_MAX_ATTEMPTS, as in the AWS SDKs.
int max_attempts() {
  constexpr int kDefault = 8;
  const auto chosen = environment_variable("AWS_MAX_ATTEMPTS");
  if (chosen.empty()) return kDefault;
  return static_cast<int>(
      std::clamp<std::int64_t>(parse_integer(chosen, "AWS_MAX_ATTEMPTS"), 1, 100));
}

// Exponential backoff up to ten seconds; jitter keeps throttled tasks from retrying together.
class RetryStrategy : public arrow::fs::S3RetryStrategy {
 public:
  bool ShouldRetry(const AWSErrorDetail& error, int64_t tried) override {
    return error.should_retry && tried + 1 < attempts_;
  }
  int64_t CalculateDelayBeforeNextRetry(const AWSErrorDetail&, int64_t tried) override {
    constexpr std::int64_t kFirst = 100;
    constexpr std::int64_t kLongest = 10'000;
    const auto wait = std::min(kFirst << std::min<std::int64_t>(tried, 7), kLongest);
    const std::lock_guard lock(mutex_);
    return std::uniform_int_distribution<std::int64_t>(wait / 2, wait)(random_);
  }

 private:
  int attempts_ = max_attempts();
  std::mutex mutex_;
  std::minstd_rand random_{std::random_device{}()};
};

// Endpoint of an S3-compatible store: AWS_ENDPOINT_URL_S3, else AWS_ENDPOINT_URL.
std::optional<Url> find_s3_endpoint() {
  for (const char* name : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) {
    const auto text = environment_variable(name);
    if (text.empty()) continue;
    auto url = parse_url(text);
    if (url.target != "/" && !url.target.empty())
      reject("{}={}: has a path; expected http(s)://host:port", name, url.without_query());
    return url;
  }
  return {};
}

std::string find_s3_region(const StoreUri& address, bool has_endpoint) {
  for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"})
    if (auto region = environment_variable(name); !region.empty()) return region;
  if (has_endpoint) return "us-east-1";
  const auto found = arrow::fs::ResolveS3BucketRegion(address.bucket);
  if (found.ok()) return *found;
  const auto& reason = found.status().message();
  if (reason.find("not found") != std::string::npos)
    reject("{}: there is no bucket '{}'; make it first, or check the name", address.to_string(),
           address.bucket);
  throw_failure("{}: cannot reach S3: {}", address.to_string(), reason);
}

arrow::fs::S3Options make_s3_options(const StoreUri& address) {
  auto options = arrow::fs::S3Options::Defaults();
  const auto own = find_s3_endpoint();
  if (own) {
    options.scheme = own->scheme;
    options.endpoint_override = fmt::format("{}:{}", own->host, own->port);
  }
  options.region = find_s3_region(address, own.has_value());
  options.retry_strategy = std::make_shared<RetryStrategy>();
  options.connect_timeout = kConnectSeconds;
  options.request_timeout = kSilentSeconds;
  options.allow_delayed_open = true;  // uploads small objects in one request
  if (options.GetAccessKey().empty())
    reject(
        "{}: no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
        "AWS_PROFILE, or run where a role is given",
        address.to_string());
  return options;
}

// Extracts the error code of an S3 response: <Code>NoSuchBucket</Code>.
std::string parse_error_code(const std::string& body) {
  constexpr std::string_view kOpen = "<Code>";
  const auto begin = body.find(kOpen);
  if (begin == std::string::npos) return "";
  const auto end = body.find("</Code>", begin);
  constexpr std::size_t kLongest = 100;
  if (end == std::string::npos || end - begin > kLongest) return "";
  return body.substr(begin + kOpen.size(), end - begin - kOpen.size());
}

class S3Store : public ObjectStore {
 public:
  S3Store(const StoreUri& address, arrow::fs::S3Options options,
          std::shared_ptr<arrow::fs::FileSystem> files)
      : ObjectStore(address, std::move(files)), options_(std::move(options)) {
    settings_.attempts = max_attempts();
    settings_.first_wait = 0.1;
    const auto own = find_s3_endpoint();
    server_ = own ? *own : parse_url(fmt::format("https://s3.{}.amazonaws.com", options_.region));
  }

  // Registers the finalization of S3 late, after the client has created all its objects, because
  // atexit handlers run in reverse order of registration.
  ~S3Store() override {
    std::atexit([] { (void)arrow::fs::EnsureS3Finalized(); });
  }

  // Lists a single name to check that the bucket exists and is readable.
  void check_access() {
    const auto prefix = address().path.empty() ? "" : address().path + "/";
    const auto response = send("GET", fmt::format("/{}?list-type=2&max-keys=1&prefix={}",
                                                  address().bucket, percent_encode(prefix)));
    if (!response.ok()) throw_http_error(response, "list", address().to_string());
  }

  void remove(const std::string& name) override {
    const auto response = send("DELETE", request_target(name));
    if (!response.ok() && response.status != 404)
      throw_http_error(response, "remove", object_address(name));
  }

 protected:
  bool try_put_if_absent(const std::string& name, const std::string& content) override {
    const auto response = send("PUT", request_target(name), content,
                               {{"If-None-Match", "*"}, {"Content-Type", "application/json"}});
    // Status 409: another conditional put is in progress.
    if (response.status == 412 || response.status == 409) return false;
    if (!response.ok()) throw_http_error(response, "write", object_address(name));
    return true;
  }

  [[noreturn]] void throw_error(const arrow::Status& status, const std::string& doing) override {
    const auto& text = status.message();
    const auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
    if (has("ACCESS_DENIED") || has("INVALID_ACCESS_KEY_ID") || has("SIGNATURE_DOES_NOT_MATCH") ||
        has("INVALID_SIGNATURE") || has("UNRECOGNIZED_CLIENT"))
      throw_no_access(doing);
    if (has("NO_SUCH_BUCKET")) throw_missing_bucket();
    if (has("NO_SUCH_KEY") || has("RESOURCE_NOT_FOUND") || has("does not exist"))
      reject("{}: there is no such object", doing);
    throw_failure("{}: the store does not answer as it should, after {} attempts: {}", doing,
                  settings_.attempts, text.substr(0, text.find('\n')));
  }

 private:
  std::string request_target(const std::string& name) const {
    return "/" + percent_encode(object_path(name), "/");
  }

  // Signs every attempt again, because credentials and signatures expire.
  HttpResponse send(const std::string& method, const std::string& target,
                    const std::string& body = "",
                    const std::vector<std::pair<std::string, std::string>>& headers = {}) {
    Backoff backoff(settings_, nullptr);
    HttpResponse response;
    do {
      HttpRequest request{.method = method, .url = server_, .headers = headers, .body = body};
      request.url.target = target;
      sign_request(request, options_.region,
                   {.access_key = options_.GetAccessKey(),
                    .secret_key = options_.GetSecretKey(),
                    .session_token = options_.GetSessionToken()},
                   unix_seconds());
      response = perform_http_request(request);
    } while (backoff.wait_before_retry(response));
    if (response.status == 0)
      throw_failure("{}: the store cannot be reached, after {} attempts: {}",
                    server_.without_query(), settings_.attempts, response.fault);
    return response;
  }

  [[noreturn]] void throw_missing_bucket() const {
    reject("{}: there is no bucket '{}' at {}; make it first, or check the name",
           address().to_string(), address().bucket, server_.without_query());
  }

  [[noreturn]] static void throw_no_access(const std::string& doing, const std::string& code = "") {
    reject(
        "{}: the store refuses the credentials{}; check AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the role, and what they may do there",
        doing, code.empty() ? "" : " (" + code + ")");
  }

  [[noreturn]] void throw_http_error(const HttpResponse& response, const char* operation,
                                     const std::string& doing) const {
    const auto code = parse_error_code(response.body);
    if (code == "NoSuchBucket") throw_missing_bucket();
    if (response.status == 401 || response.status == 403) throw_no_access(doing, code);
    if (response.status == 301 || code == "AuthorizationHeaderMalformed")
      reject("{}: the bucket is in another region than {}; set AWS_REGION", doing, options_.region);
    throw_failure("{}: cannot {}: the store answers {}{}, after {} attempts", doing, operation,
                  response.status, code.empty() ? "" : " (" + code + ")", settings_.attempts);
  }

  arrow::fs::S3Options options_;
  HubSettings settings_;
  Url server_;
};

}  // namespace

void sign_request(HttpRequest& request, const std::string& region,
                  const AwsCredentials& credentials, double now) {
  const auto time = fmt::format("{:%Y%m%dT%H%M%SZ}", fmt::gmtime(static_cast<std::time_t>(now)));
  const auto content = sha256_hex(request.body);
  request.headers.emplace_back("x-amz-date", time);
  request.headers.emplace_back("x-amz-content-sha256", content);
  if (!credentials.session_token.empty())
    request.headers.emplace_back("x-amz-security-token", credentials.session_token);

  std::map<std::string, std::string> sorted = {{"host", request.url.host_and_port()}};
  for (const auto& [name, value] : request.headers) sorted[ascii_lower(name)] = value;
  std::string headers;
  std::string names;
  for (const auto& [name, value] : sorted) {
    headers += fmt::format("{}:{}\n", name, value);
    names += (names.empty() ? "" : ";") + name;
  }
  const auto& target = request.url.target;
  const auto question = target.find('?');
  const auto query = question == std::string::npos ? "" : target.substr(question + 1);
  const auto canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method,
                                     target.substr(0, question), query, headers, names, content);

  const auto day = time.substr(0, 8);
  const auto scope = fmt::format("{}/{}/s3/aws4_request", day, region);
  const auto secret = "AWS4" + credentials.secret_key;
  auto key =
      hmac_sha256({reinterpret_cast<const unsigned char*>(secret.data()), secret.size()}, day);
  for (const std::string_view part :
       {std::string_view(region), std::string_view("s3"), std::string_view("aws4_request")})
    key = hmac_sha256(key, part);
  const auto signature = to_hex(hmac_sha256(
      key, fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, scope, sha256_hex(canonical))));
  request.headers.emplace_back(
      "Authorization",
      fmt::format("AWS4-HMAC-SHA256 Credential={}/{},SignedHeaders={},Signature={}",
                  credentials.access_key, scope, names, signature));
}

std::unique_ptr<ObjectStore> open_s3_store(const StoreUri& address) {
  // Initialize on demand, because the AWS SDK starts slowly and creates threads.
  static std::once_flag once;
  std::call_once(once, [&] {
    const auto status = arrow::fs::EnsureS3Initialized();
    if (!status.ok())
      throw_failure("{}: cannot start the S3 client: {}", address.to_string(), status.message());
  });
  auto options = make_s3_options(address);
  auto files = arrow::fs::S3FileSystem::Make(options);
  if (!files.ok())
    reject("{}: cannot set up the S3 client: {}", address.to_string(), files.status().message());
  auto store = std::make_unique<S3Store>(address, std::move(options), *files);
  store->check_access();
  return store;
}

}  // namespace qkscope
