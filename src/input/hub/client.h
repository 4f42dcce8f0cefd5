// Client of the Hub API: authentication, redirects, retries, and the meaning of error responses.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "base/io/json_fwd.h"
#include "input/hub/http.h"
#include "qkscope/hub.h"

namespace qkscope {

// Connection settings of the Hub.
struct HubSettings {
  Url endpoint;                 // HF_ENDPOINT, default https://huggingface.co
  std::string token;            // HF_TOKEN, else the file written by `hf auth login`; may be ""
  bool offline = false;         // HF_HUB_OFFLINE: send no requests
  int stall_seconds = 30;       // HF_HUB_DOWNLOAD_TIMEOUT: abort a connection without data
  int attempts = 5;             // per request, or per download without progress
  double first_wait = 0.5;      // seconds before the second attempt; doubles each time
  double longest_wait = 300.0;  // seconds; give up if the server asks for more
};

HubSettings hub_settings();

struct Repository : RepositoryName {
  std::string kind_name() const { return kind == RepositoryKind::model ? "model" : "dataset"; }
  std::string api_path() const { return "/api/" + kind_name() + "s/" + id; }
  std::string page_path() const {
    return kind == RepositoryKind::model ? "/" + id : "/datasets/" + id;
  }
};

class HubClient {
 public:
  explicit HubClient(HubSettings settings, const std::atomic<bool>* stop = nullptr)
      : settings_(std::move(settings)), stop_(stop) {}

  const HubSettings& settings() const { return settings_; }
  const std::atomic<bool>* stop_flag() const { return stop_; }
  Url url_of(const std::string& path) const;  // URL of a path below the endpoint

  // Sends a request once. Redirects stay on the endpoint; a GET with may_leave_endpoint may follow
  // one to any https server. The token is sent to the endpoint only. A connection failure is
  // returned as status 0.
  HttpResponse send_once(HttpRequest request) const;

  // Sends a request with retries (is_retryable). Returns any HTTP status; throws if the
  // connection keeps failing.
  HttpResponse send(const HttpRequest& request) const;

  // Sends a POST and parses the JSON response. Throws for any unsuccessful status (throw_refusal).
  Json post_json(const Repository& repository, const Url& url, const Json& body) const;

 private:
  HubSettings settings_;
  const std::atomic<bool>* stop_;
};

Json parse_response(const HttpResponse& response, const Url& url);

// Call inside a catch block around code that parses a response. Parse errors become a failure error
// that names the URL, because the server is at fault; other failures are rethrown unchanged.
[[noreturn]] void rethrow_response_error(const Url& url);

template <typename Body>
auto translate_response_errors(const Url& url, const Body& body) {
  try {
    return body();
  } catch (...) {
    rethrow_response_error(url);
  }
}

enum class RepositoryAccess { read, write };

// Throws an error that explains an unsuccessful response and what to do about it.
[[noreturn]] void throw_refusal(const HubClient& client, const HttpResponse& response,
                                const Repository& repository, RepositoryAccess access);

[[noreturn]] void throw_connection_error(const HttpResponse& response, const Url& url);

// Returns true for a transient connection failure and for the statuses 408, 429, 500, 502, 503,
// 504.
bool is_retryable(const HttpResponse& response);

// Parses a Retry-After header, which holds seconds or a date, and returns the seconds to wait.
// Returns nullopt if the header is empty or invalid. `now` is Unix time in seconds.
std::optional<double> parse_retry_after(const std::string& header, double now);

// Exponential backoff between attempts of one request or one download.
class Backoff {
 public:
  Backoff(const HubSettings& settings, const std::atomic<bool>* stop)
      : settings_(settings), stop_(stop) {}

  // Sleeps with doubling delays, or as long as Retry-After says. Returns false if no attempt is
  // left.
  bool wait_after(const HttpResponse& response);
  void reset_tries() { tries_ = 0; }

 private:
  const HubSettings& settings_;
  const std::atomic<bool>* stop_;
  int tries_ = 0;
};

}  // namespace qkscope
