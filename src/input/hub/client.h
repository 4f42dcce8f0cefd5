// Requests to the Hub: who gets the token, where redirects may lead, what is tried again, and what
// an answer means.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "base/io/json_fwd.h"
#include "input/hub/http.h"
#include "input/hub/settings.h"
#include "qkscope/hub.h"

namespace qkscope {

struct Repository : RepositoryName {
  std::string kind_name() const { return kind == RepositoryKind::model ? "model" : "dataset"; }
  std::string api_path() const;   // "/api/models/org/name"
  std::string page_path() const;  // "/org/name", "/datasets/org/name"
};

class HubClient {
 public:
  explicit HubClient(HubSettings settings, const std::atomic<bool>* stop = nullptr)
      : settings_(std::move(settings)), stop_(stop) {}

  const HubSettings& settings() const { return settings_; }
  const std::atomic<bool>* stop() const { return stop_; }
  Url at(const std::string& path) const;  // below the endpoint

  // One attempt. Redirects are followed on the endpoint, and to any https server where a GET may
  // leave it; the token goes to the endpoint's server and no other. A broken connection is in the
  // answer.
  HttpResponse send_once(HttpRequest request) const;

  // Tries again where worth_another_try(). Any status may come back; a connection that stays broken
  // is a failure.
  HttpResponse send(const HttpRequest& request) const;

  // An answer that is not a success is thrown as an error (explain_refusal).
  Json get_json(const Repository& repository, const Url& url) const;
  Json post_json(const Repository& repository, const Url& url, const Json& body) const;

 private:
  HubSettings settings_;
  const std::atomic<bool>* stop_;
};

Json parse_answer(const HttpResponse& response, const Url& url);

// Called inside a catch block around code that reads an answer: what is wrong with the answer is
// the server's fault and becomes a failure that names the address; a failure passes as it is.
[[noreturn]] void rethrow_answer_error(const Url& url);

template <typename Body>
auto reading_answer(const Url& url, const Body& body) {
  try {
    return body();
  } catch (...) {
    rethrow_answer_error(url);
  }
}

enum class Access { read, write };

// Throws what a refusal means and what to do about it. `response` is not a success.
[[noreturn]] void explain_refusal(const HubClient& client, const HttpResponse& response,
                                  const Repository& repository, Access access);

[[noreturn]] void connection_failed(const HttpResponse& response, const Url& url);

// A connection that broke, or a status that says "later": 408, 429, 500, 502, 503, 504.
bool worth_another_try(const HttpResponse& response);

// The seconds that a Retry-After header asks to wait: it holds seconds or a date. Nothing where it
// is absent or cannot be understood. `now`: seconds since 1970.
std::optional<double> retry_after(const std::string& header, double now);

// The waiting between attempts at one request, or at one download.
class Backoff {
 public:
  Backoff(const HubSettings& settings, const std::atomic<bool>* stop)
      : settings_(settings), stop_(stop) {}

  // Waits, twice as long each time or as long as the server asks for. False when no attempt is
  // left.
  bool wait_after(const HttpResponse& response);
  void made_progress() { tries_ = 0; }

 private:
  const HubSettings& settings_;
  const std::atomic<bool>* stop_;
  int tries_ = 0;
};

}  // namespace qkscope
