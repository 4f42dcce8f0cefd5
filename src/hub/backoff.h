// Patience with a server: what is worth another try, and how long to wait before it.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "hub/http.h"
#include "hub/settings.h"

namespace qkscope {

// A connection that broke, or a status that says "later": 408, 429, 500, 502, 503, 504.
bool worth_another_try(const HttpResponse& response);

// Seconds, or a date; nothing where the header is absent or makes no sense. `now`: seconds since
// 1970.
std::optional<double> retry_after(const std::string& header, double now);

class Backoff {
 public:
  Backoff(const HubSettings& settings, const std::atomic<bool>* stop)
      : settings_(settings), stop_(stop) {}

  // Waits, twice as long each time or as long as the server asks for. False when no try is left.
  bool wait_after(const HttpResponse& response);
  void made_headway() { tries_ = 0; }

 private:
  const HubSettings& settings_;
  const std::atomic<bool>* stop_;
  int tries_ = 0;
};

}  // namespace qkscope
