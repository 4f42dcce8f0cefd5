// How to reach the Hub, from the variables its users know.
#pragma once

#include <string>

#include "input/hub/http.h"

namespace qkscope {

struct HubSettings {
  Url endpoint;          // HF_ENDPOINT, else https://huggingface.co
  std::string token;     // HF_TOKEN, else the file that `hf auth login` writes; "" without one
  bool offline = false;  // HF_HUB_OFFLINE: nothing is asked of the Hub
  int stall_seconds =
      30;            // HF_HUB_DOWNLOAD_TIMEOUT: a connection that is silent for so long is cut
  int attempts = 5;  // of one request, or of a download that makes no progress
  double first_wait = 0.5;      // seconds before the second attempt; doubled for each one after it
  double longest_wait = 300.0;  // a server that asks for more patience is not waited for
};

HubSettings hub_settings();

}  // namespace qkscope
