// A finished capture as a branch of a dataset repository on the Hub.
#pragma once

#include <string>

namespace qkscope {

struct PublishOptions {
  std::string repo;    // "org/name"; "" takes what the capture's configuration says
  std::string branch;  // the same; main where neither says
  bool private_repo = false;
  bool quiet = false;
};

struct PublishResult {
  std::string address;
  std::size_t sent = 0;       // files that were new or changed
  std::size_t unchanged = 0;  // files that were there already
  std::size_t removed = 0;    // files of an older capture on that branch
};

// One commit makes the branch hold this capture and no other, or nothing happens; files that no
// capture has stay. After an interruption the same call goes on where it stopped.
PublishResult publish_capture(const std::string& data_root, const PublishOptions& options);

// Whether there is a token to publish with.
bool can_publish();

}  // namespace qkscope
