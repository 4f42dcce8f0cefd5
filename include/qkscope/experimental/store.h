// Object stores: s3://bucket/path, gs://bucket/path and file:///path are accepted wherever a folder
// is read or written. Credentials come from the standard environment (docs/how-to/stores.md) and
// are never logged.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "qkscope/hub.h"
#include "qkscope/version.h"

namespace qkscope {

// Returns true for an address such as s3://bucket/path, false for a local path. Throws a bad-input
// error for an unsupported URL scheme.
QKSCOPE_API bool is_store_address(const std::string& path_or_uri);

// Throws a bad-input error if the address cannot be accessed with the current credentials: bucket
// missing, credentials missing or rejected. Writes nothing; accepts every local path.
QKSCOPE_API void check_store(const std::string& path_or_uri);

// Downloads and verifies a folder that was published to an object store, and returns the local
// copy. A local path is returned unchanged.
QKSCOPE_API std::string fetch_stored(const std::string& path_or_uri, bool quiet = false);

// Downloads a checkpoint, tokenizer or dataset from an object store, once per process, and returns
// the local file or folder. A local path or Hub name is returned unchanged.
QKSCOPE_API std::string fetch_input(const std::string& path_or_uri,
                                    const FetchOptions& options = {});

// Output folder at a local path or a store address. For an address, files are staged in a local
// folder and become visible to readers all at once in publish().
class QKSCOPE_API StoredOutput {
 public:
  // `kind` names the content, e.g. "results" for tables. Throws a bad-input error if the address
  // already holds content of another kind.
  StoredOutput(const std::string& path_or_uri, const std::string& kind);
  ~StoredOutput();
  StoredOutput(const StoredOutput&) = delete;
  StoredOutput& operator=(const StoredOutput&) = delete;

  const std::string& folder() const;  // local folder to write files into
  // Uploads the staged files. No effect for a local folder.
  void publish(bool quiet = false);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct GarbageObject {
  std::string address;
  std::uint64_t bytes = 0;
  double age = 0.0;  // seconds since the last modification
};

// Lists the objects below an address that interrupted writers left behind: objects older than
// `older_than` seconds that neither the newest manifest nor a running capture references. Objects
// that qkscope did not write are never listed.
QKSCOPE_API std::vector<GarbageObject> find_garbage(const std::string& address, double older_than);
QKSCOPE_API void remove_garbage(const std::string& address,
                                const std::vector<GarbageObject>& garbage);

}  // namespace qkscope
