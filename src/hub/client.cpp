#include "hub/client.h"

#include "core/error.h"
#include "core/text.h"
#include "hub/backoff.h"

namespace qkscope {
namespace {

constexpr int kMostRedirects = 8;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Where a redirect leads, if it may be followed.
Url next_stop(const HttpRequest& request, const HttpResponse& response, const Url& endpoint) {
  const auto next = resolve_url(request.url, response.header("location"));
  if (request.url.scheme == "https" && next.scheme == "http")
    failure("{}: sends us on to {}, which is not encrypted; not followed",
            request.url.without_query(), next.without_query());
  refuse_plain_http(next, "a redirect of " + request.url.without_query());
  const bool repeatable = response.status == 307 || response.status == 308;
  if (request.method != "GET" && !(repeatable && same_server(next, endpoint)))
    failure("{}: sends a {} on to {}; not followed", request.url.without_query(), request.method,
            next.without_query());
  return next;
}

}  // namespace

std::string Repository::api_path() const {
  return fmt::format("/api/{}s/{}", kind_name(), id);
}

std::string Repository::page_path() const {
  return kind == RepositoryKind::model ? "/" + id : "/datasets/" + id;
}

Url HubClient::at(const std::string& path) const {
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
    if (!settings_.token.empty() && same_server(request.url, settings_.endpoint))
      request.headers.emplace_back("Authorization", "Bearer " + settings_.token);
    auto response = exchange(request);
    if (!is_redirect(response.status) || response.header("location").empty()) return response;
    request.url = next_stop(request, response, settings_.endpoint);
  }
  failure("{}: more than {} redirects", request.url.without_query(), kMostRedirects);
}

HttpResponse HubClient::send(const HttpRequest& request) const {
  Backoff backoff(settings_, stop_);
  auto response = send_once(request);
  while (backoff.wait_after(response)) response = send_once(request);
  if (response.status == 0) connection_failed(response, request.url);
  return response;
}

Json HubClient::get_json(const Repository& repository, const Url& url) const {
  const auto response = send({.url = url});
  if (!response.ok()) explain_refusal(*this, response, repository, Access::read);
  return parse_answer(response, url);
}

Json HubClient::post_json(const Repository& repository, const Url& url, const Json& body) const {
  const auto response = send({.method = "POST",
                              .url = url,
                              .headers = {{"Content-Type", "application/json"}},
                              .body = body.dump()});
  if (!response.ok()) explain_refusal(*this, response, repository, Access::write);
  return parse_answer(response, url);
}

Json parse_answer(const HttpResponse& response, const Url& url) {
  try {
    return parse_json(response.body, url.without_query());
  } catch (const Error& error) {  // the server's mistake, not the user's
    failure("the Hub's answer cannot be read: {}", error.what());
  }
}

}  // namespace qkscope
