// Requests to the Hub: who gets the token, where redirects may lead, what an answer means.
#pragma once

#include <atomic>
#include <string>

#include "checkpoint/hub_cache.h"
#include "hub/http.h"
#include "hub/settings.h"
#include "io/json.h"

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

  // One try. Redirects are followed, for a GET to any https server, else on the endpoint only; the
  // token goes to the endpoint's server and no other. A broken connection is in the answer.
  HttpResponse send_once(HttpRequest request) const;

  // Tries again while it is worth it. Any status may come back; a connection that stays broken is a
  // failure.
  HttpResponse send(const HttpRequest& request) const;

  // An answer that is not a success ends in the sentence that fits it.
  Json get_json(const Repository& repository, const Url& url) const;
  Json post_json(const Repository& repository, const Url& url, const Json& body) const;

 private:
  HubSettings settings_;
  const std::atomic<bool>* stop_;
};

Json parse_answer(const HttpResponse& response, const Url& url);

enum class Access { read, write };

// What a refusal means and what to do about it. `response` is not a success.
[[noreturn]] void explain_refusal(const HubClient& client, const HttpResponse& response,
                                  const Repository& repository, Access access);

[[noreturn]] void connection_failed(const HttpResponse& response, const Url& url);

}  // namespace qkscope
