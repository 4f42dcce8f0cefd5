// The download of one blob, over as many connections as it takes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "hub/cache_writer.h"
#include "hub/digest.h"

namespace qkscope {

class BlobDownload {
 public:
  // `progress`: bytes of the file that are there, also what an earlier run left; may throw to stop.
  BlobDownload(const HubClient& client, const Repository& repository, const Url& url,
               const RemoteFile& file, std::function<void(std::uint64_t)> progress);

  // Ends when the blob is in its place, or in an error that says why it cannot be.
  void run();

 private:
  class Partial;

  void continue_partial(Partial& partial);
  HttpResponse fetch_rest(Partial& partial);

  const HubClient& client_;
  const Repository& repository_;
  Url url_;
  const RemoteFile& file_;
  CacheWriter cache_;
  std::function<void(std::uint64_t)> progress_;
};

}  // namespace qkscope
