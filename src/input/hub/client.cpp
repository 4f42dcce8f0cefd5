#include "input/hub/client.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <thread>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "input/checkpoint/hub_cache.h"

namespace qkscope {
namespace {

// Parses a boolean environment variable with the rules of huggingface_hub.
bool environment_flag(const char* name) {
  const auto value = ascii_lower(environment_variable(name));
  return value == "1" || value == "on" || value == "yes" || value == "true";
}

// A line break in a token would allow header injection. Messages must not contain the token.
std::string validate_access_token(const std::string& text, const std::string& where) {
  auto token = trim_white_space(text);
  if (std::ranges::any_of(token, [](unsigned char c) { return c <= ' ' || c >= 0x7f; }))
    reject("{}: holds spaces or characters that no token has; expected one word (hf_...)", where);
  return token;
}

std::string find_access_token() {
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
    if (auto token = validate_access_token(environment_variable(name), name); !token.empty())
      return token;
  auto path = environment_variable("HF_TOKEN_PATH");
  const bool somewhere = !environment_variable("HF_HOME").empty() ||
                         !environment_variable("XDG_CACHE_HOME").empty() ||
                         !environment_variable("HOME").empty();
  if (path.empty() && somewhere) path = hugging_face_home() + "/token";
  if (path.empty() || !path_exists(path)) return "";
  return validate_access_token(std::string(MappedFile(path).text()), path);
}

Url find_endpoint() {
  auto text = environment_variable("HF_ENDPOINT");
  if (text.empty()) text = "https://huggingface.co";
  while (text.ends_with('/')) text.pop_back();
  auto url = parse_url(text);
  refuse_plain_http(url, "HF_ENDPOINT");
  return url;
}

constexpr int kMostRedirects = 8;

// Returns the target of a redirect. Throws if following the redirect would be unsafe.
Url redirect_target(const HttpRequest& request, const HttpResponse& response, const Url& endpoint) {
  auto next = parse_with_url_in_errors(
      request.url, [&] { return resolve_url(request.url, response.header("location")); });
  if (next.scheme == "http" && (request.url.scheme == "https" || !is_loopback(next)))
    throw_failure("{}: sends us on to {}, which is not encrypted; not followed",
                  request.url.without_query(), next.without_query());
  if (request.method == "GET" && !request.may_leave_endpoint && !is_same_server(next, endpoint))
    throw_failure("{}: sends a question to the Hub on to another server, {}; not followed",
                  request.url.without_query(), next.without_query());
  const bool repeatable = response.status == 307 || response.status == 308;
  if (request.method != "GET" && !(repeatable && is_same_server(next, endpoint)))
    throw_failure("{}: sends a {} on to {}; not followed", request.url.without_query(),
                  request.method, next.without_query());
  return next;
}

// Returns the explanation sent by the server, as a suffix for an error message.
std::string server_error_message(const HttpResponse& response) {
  auto text = response.header("x-error-message");
  constexpr std::size_t kLongest = 64 << 10;  // bytes; longer bodies are HTML pages
  if (text.empty() && response.body.size() < kLongest) {
    const auto json = Json::parse(response.body, nullptr, false);
    if (json.is_object() && json.contains("error") && json["error"].is_string())
      text = json["error"].get<std::string>();
  }
  return text.empty() ? "" : fmt::format(" (it says {})", quote_text(text));
}

std::string token_advice(const HubClient& client) {
  return client.settings().token.empty()
             ? "no token was sent: set HF_TOKEN, or log in with 'hf auth login'"
             : "the token that was sent (HF_TOKEN or the token file) may be of another user, "
               "expired, or without that permission";
}

constexpr double kLongestOwnWait = 30.0;  // seconds, without Retry-After

bool stop_was_requested(const std::atomic<bool>* stop) {
  return stop != nullptr && stop->load();
}

// Sleeps in short steps, so that `stop` takes effect quickly.
void sleep_unless_stopped(double seconds, const std::atomic<bool>* stop) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  while (Clock::now() < end && !stop_was_requested(stop))
    std::this_thread::sleep_for(
        std::min<Clock::duration>(end - Clock::now(), std::chrono::milliseconds(100)));
}

}  // namespace

HubSettings hub_settings() {
  HubSettings settings;
  settings.endpoint = find_endpoint();
  settings.token = find_access_token();
  settings.offline = environment_flag("HF_HUB_OFFLINE") || environment_flag("TRANSFORMERS_OFFLINE");
  if (const auto seconds = environment_variable("HF_HUB_DOWNLOAD_TIMEOUT"); !seconds.empty())
    settings.stall_seconds = static_cast<int>(
        std::clamp<std::int64_t>(parse_integer(seconds, "HF_HUB_DOWNLOAD_TIMEOUT"), 1, 3600));
  return settings;
}

Url HubClient::make_url(const std::string& path) const {
  auto url = settings_.endpoint;
  if (url.target.ends_with('/')) url.target.pop_back();
  url.target += path;
  return url;
}

HttpResponse HubClient::send_once(HttpRequest request) const {
  request.stall_seconds = settings_.stall_seconds;
  request.stop = stop_;
  const auto headers = request.headers;
  for (int hop = 0; hop <= kMostRedirects; ++hop) {
    request.headers = headers;
    if (!settings_.token.empty() && is_same_server(request.url, settings_.endpoint))
      request.headers.emplace_back("Authorization", "Bearer " + settings_.token);
    auto response = perform_http_request(request);
    constexpr int kRedirects[] = {301, 302, 303, 307, 308};
    const bool redirected = std::ranges::count(kRedirects, response.status) > 0;
    if (!redirected || response.header("location").empty()) return response;
    request.url = redirect_target(request, response, settings_.endpoint);
  }
  throw_failure("{}: more than {} redirects", request.url.without_query(), kMostRedirects);
}

HttpResponse HubClient::send(const HttpRequest& request) const {
  Backoff backoff(settings_, stop_);
  auto response = send_once(request);
  while (backoff.wait_before_retry(response)) response = send_once(request);
  if (response.status == 0) throw_connection_error(response, request.url);
  return response;
}

Json HubClient::post_json(const Repository& repository, const Url& url, const Json& body) const {
  const auto response = send(make_post_request(url, body));
  if (!response.ok()) throw_response_error(*this, response, repository, RepositoryAccess::write);
  return parse_response(response, url);
}

HttpRequest make_post_request(const Url& url, const Json& body) {
  return {.method = "POST",
          .url = url,
          .headers = {{"Content-Type", "application/json"}},
          .body = body.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

Json parse_response(const HttpResponse& response, const Url& url) {
  return parse_with_url_in_errors(url,
                                  [&] { return parse_json(response.body, url.without_query()); });
}

void rethrow_response_error(const Url& url) {
  try {
    throw;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::failure) throw;
    throw_failure("the Hub's answer cannot be read: {}: {}", url.without_query(), error.what());
  } catch (const Json::exception& error) {
    throw_failure("the Hub's answer cannot be read: {}: {}", url.without_query(), error.what());
  }
}

void throw_connection_error(const HttpResponse& response, const Url& url) {
  throw_failure(
      "{}: {}; is the network there? HF_HUB_OFFLINE=1 works with what the cache holds, and the "
      "same command continues later",
      url.without_query(), response.fault);
}

void throw_response_error(const HubClient& client, const HttpResponse& response,
                          const Repository& repository, RepositoryAccess access) {
  const auto code = response.header("x-error-code");
  const auto name = fmt::format("{} {}", repository.kind_name(), repository.id);
  if (code == "GatedRepo")
    reject("{}: access is gated: accept its conditions at {} and use a token of that account; {}",
           name, client.make_url(repository.web_path()).to_string(), token_advice(client));
  if (code == "RevisionNotFound")
    reject("{}: the Hub has no such revision{}", name, server_error_message(response));
  if (response.status == 404 || code == "RepoNotFound")
    reject("{}: the Hub at {} has no such {}, or it is private and hidden; check the name; {}",
           name, client.make_url("").without_query(), repository.kind_name(), token_advice(client));
  if (response.status == 401 || response.status == 403)
    reject("{}: the Hub does not allow to {} it{}; {}", name,
           access == RepositoryAccess::read ? "read" : "write to", server_error_message(response),
           token_advice(client));
  if (response.status == 429)
    throw_failure("{}: the Hub limits our requests{}; wait a while and run the same command", name,
                  server_error_message(response));
  if (response.status >= 500)
    throw_failure("{}: the Hub is in trouble (status {}){}; run the same command later", name,
                  response.status, server_error_message(response));
  throw_failure("{}: the Hub answers with status {}{}", name, response.status,
                server_error_message(response));
}

bool is_retryable(const HttpResponse& response) {
  if (response.status == 0) return response.transient;
  constexpr int kRetryableStatuses[] = {408, 429, 500, 502, 503, 504};
  return std::ranges::count(kRetryableStatuses, response.status) > 0;
}

std::optional<double> parse_retry_after(const std::string& header, double now) {
  if (header.empty()) return {};
  if (header.find_first_not_of("0123456789") == std::string::npos && header.size() < 10)
    return std::stod(header);
  std::tm time{};  // e.g. "Wed, 21 Oct 2015 07:28:00 GMT"
  if (::strptime(header.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &time) == nullptr) return {};
  return std::max(0.0, static_cast<double>(::timegm(&time)) - now);
}

bool Backoff::wait_before_retry(const HttpResponse& response) {
  if (!is_retryable(response) || ++attempts_ >= settings_.attempts || stop_was_requested(stop_))
    return false;
  const auto asked = parse_retry_after(response.header("retry-after"), unix_seconds());
  const double own = std::min(kLongestOwnWait, settings_.first_wait * std::exp2(attempts_ - 1));
  const double seconds = asked.value_or(own);
  if (seconds > settings_.longest_wait) return false;
  log::debug("{}; trying again in {:.1f} s",
             response.status == 0 ? response.fault : fmt::format("status {}", response.status),
             seconds);
  sleep_unless_stopped(seconds, stop_);
  return !stop_was_requested(stop_);
}

}  // namespace qkscope
