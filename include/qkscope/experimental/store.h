// Object stores: s3://bucket/path, gs://bucket/path and file:///path, wherever a folder is read or
// written. Credentials are found as other programs find them (docs/stores.md) and appear nowhere.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "qkscope/hub.h"
#include "qkscope/version.h"

namespace qkscope {

// False for a local path. A scheme that is not one of these is bad input.
QKSCOPE_API bool is_store_address(const std::string& path_or_address);

// Bad input where an address cannot be reached with the credentials at hand: no such bucket, wrong
// credentials or none. Nothing is written; a local path passes.
QKSCOPE_API void check_store(const std::string& path_or_address);

// A folder that is to be read: a local path as it is; of an address everything that was written
// there, fetched and checked, as a local folder.
QKSCOPE_API std::string fetch_stored(const std::string& path_or_address, bool quiet = false);

// A checkpoint, tokenizer or dataset that others put into a store: a path or a name on the Hub as
// it is; of an address the objects there, fetched once, as a local file or folder.
QKSCOPE_API std::string fetch_input(const std::string& path_or_address,
                                    const FetchOptions& options = {});

// A folder that is to be written. Of an address the files are written on this machine, and there at
// once for everybody when publish() has put them all.
class QKSCOPE_API StoredOutput {
 public:
  // `kind`: what it will be, "results" for tables. An address that holds something of another kind
  // is bad input.
  StoredOutput(const std::string& path_or_address, const std::string& kind);
  ~StoredOutput();
  StoredOutput(const StoredOutput&) = delete;
  StoredOutput& operator=(const StoredOutput&) = delete;

  const std::string& folder() const;  // to write into
  // Nothing happens for a local folder.
  void publish(bool quiet = false);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct GarbageObject {
  std::string address;
  std::uint64_t bytes = 0;
  double age = 0.0;  // seconds
};

// Objects below an address that writers left behind: no manifest and no run that is going on names
// them, and they are older than so many seconds. What qkscope did not write is never among them.
QKSCOPE_API std::vector<GarbageObject> find_garbage(const std::string& address, double older_than);
QKSCOPE_API void remove_garbage(const std::string& address,
                                const std::vector<GarbageObject>& garbage);

}  // namespace qkscope
