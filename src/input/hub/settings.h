// Connection settings of the Hub, read from the environment.
#pragma once

#include <string>

#include "input/hub/http.h"

namespace qkscope {

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

}  // namespace qkscope
