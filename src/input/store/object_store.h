// Objects below one address in an object store. Assumes only that objects appear atomically and
// that exactly one of several concurrent conditional puts succeeds; needs no renames or locks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <arrow/filesystem/type_fwd.h>
#include <arrow/type_fwd.h>

namespace qkscope {

struct StoreUri {
  enum class UriScheme { s3, gs, file };

  UriScheme scheme = UriScheme::file;
  std::string bucket;  // "" for file://
  std::string path;    // without leading and trailing slashes

  std::string to_string() const;
  // Returns the last component of the path, or the bucket if the path is empty.
  std::string last_path_component() const {
    return path.empty() ? bucket : path.substr(path.rfind('/') + 1);  // npos + 1 == 0
  }
  StoreUri child(const std::string& name) const;
  // Returns the path in the form that Arrow expects: "bucket/path", or "/path" for file://.
  std::string arrow_path() const;
};

// Returns nullopt for a local path. Unknown schemes and missing buckets or paths are bad input.
std::optional<StoreUri> parse_store_uri(const std::string& text);

// Local folders below QKSCOPE_SCRATCH, else XDG_CACHE_HOME/qkscope, else ~/.cache/qkscope:
//
//   runs/HASH-RUN/       data root of a running capture
//   stores/HASH/...      downloaded files
//   results/HASH-NAME/   output files before their upload
//   sweeps/HASH/NAME/    folder of a sweep, without captures and statistics
std::string scratch_folder_for_run(const StoreUri& address, const std::string& run);
std::string scratch_folder_for_downloads(const StoreUri& address);
std::string scratch_folder_for_output(const StoreUri& address, const std::string& name);
std::string scratch_folder_for_sweep(const StoreUri& address);

struct HttpRequest;

struct StoredObject {
  std::string name;  // relative to the address
  std::uint64_t bytes = 0;
  double modified = 0.0;  // Unix time in seconds
};

struct ObjectFingerprint {
  std::uint64_t bytes = 0;
  std::string checksum;  // XXH3-64 as 16 hexadecimal digits

  bool operator==(const ObjectFingerprint&) const = default;
};

// Reads, writes and lists objects through an arrow::fs::FileSystem. Derived classes implement
// conditional puts and removals.
class ObjectStore {
 public:
  ObjectStore(StoreUri address, std::shared_ptr<arrow::fs::FileSystem> files)
      : address_(std::move(address)), files_(std::move(files)) {}
  virtual ~ObjectStore() = default;
  ObjectStore(const ObjectStore&) = delete;
  ObjectStore& operator=(const ObjectStore&) = delete;

  const StoreUri& address() const { return address_; }
  // Returns the full address of an object for messages.
  std::string object_address(const std::string& name) const;

  std::optional<StoredObject> find(const std::string& name);
  // Returns the content of a small object, or nullopt if it does not exist.
  std::optional<std::string> read(const std::string& name);
  // Downloads an object to a file, which appears atomically. If size or checksum differ from
  // `expected`, retries, then throws a bad-input error. Without `expected`, accepts any content.
  void download_to_file(const std::string& name, const std::string& file,
                        const std::optional<ObjectFingerprint>& expected);
  virtual ObjectFingerprint put(const std::string& name, const std::string& file);
  // Conditional put: returns false if an object with this name but different content exists.
  // Identical content counts as success: the response to an earlier attempt may have been lost.
  bool put_if_absent(const std::string& name, const std::string& content) {
    return try_put_if_absent(name, content) || read(name) == content;
  }
  // Lists the objects below "prefix/" (all objects for ""), sorted by name.
  std::vector<StoredObject> list(const std::string& prefix);
  // Removes an object. No effect if it does not exist.
  virtual void remove(const std::string& name) = 0;

 protected:
  // Tries once to create an object (conditional put). Returns false if one with this name exists.
  virtual bool try_put_if_absent(const std::string& name, const std::string& content) = 0;
  // Creates the parent folders of an object before it is written, in stores that have folders.
  virtual void make_parent_folders(const std::string& /*name*/) {}
  // Throws an Error that describes an unsuccessful Arrow status of this store.
  [[noreturn]] virtual void throw_error(const arrow::Status& status, const std::string& doing) = 0;

  std::string object_path(const std::string& name) const;
  arrow::fs::FileSystem& file_system() { return *files_; }
  void check_status(const arrow::Status& status, const std::string& doing);
  template <typename T>
  T value_or_throw(arrow::Result<T> result, const std::string& doing) {
    check_status(result.status(), doing);
    return std::move(result).ValueUnsafe();
  }

 private:
  StoreUri address_;
  std::shared_ptr<arrow::fs::FileSystem> files_;
};

// Opens a store. Throws an error if the bucket does not exist or is not readable with the current
// credentials. In builds without S3 or GCS, s3_absent.cpp or gcs_absent.cpp throws instead.
std::unique_ptr<ObjectStore> open_store(const StoreUri& address);
std::unique_ptr<ObjectStore> open_s3_store(const StoreUri& address);
std::unique_ptr<ObjectStore> open_gcs_store(const StoreUri& address);

// An object to download and its local path. `content.checksum` is "" if only the size is known.
struct ObjectDownload {
  std::string name;
  std::string path;
  ObjectFingerprint content;
};

// Downloads objects in parallel with one progress line and verifies their content.
void download_objects(ObjectStore& store, const std::vector<ObjectDownload>& downloads, bool quiet);

// Verifies that the store honours conditional puts by repeating one on a name just created with
// put_if_absent(). If the store overwrites the object, removes it and throws an Error of kind
// failure.
void verify_conditional_put_support(ObjectStore& store, const std::string& name);

void remove_objects(ObjectStore& store, const std::vector<std::string>& names);

// Returns a unique name such as "20261116T130501-9f3a01c2d4e5f607" (UTC time and random bits).
std::string make_timestamped_id();

// ---- Conditional puts for stores that lack them, using a lease object with owner and expiry time

inline constexpr char kLeaseSuffix[] = ".lease";

// Store operations that a lease needs. A read must return the most recently written value.
struct LeaseBackend {
  std::function<std::optional<std::string>(const std::string& name)> read;
  std::function<void(const std::string& name, const std::string& content)> write;
  std::function<void(const std::string& name)> remove;
};

struct LeaseDurations {
  double lifetime = 60.0;    // seconds until expiry; a crashed owner blocks others for this long
  double settle_time = 1.0;  // seconds after which concurrent writers see the same owner
};

// Creates an object under a lease. Returns false if the object already exists. Safe as long as no
// write takes longer than `settle_time` and no owner is suspended for longer than `lifetime`.
bool put_with_lease(const LeaseBackend& store, const std::string& name, const std::string& content,
                    const LeaseDurations& times = {});

// ---- AWS Signature Version 4 (s3_store.cpp)

struct AwsCredentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // "" for permanent credentials
};

// Signs all headers of a request: adds x-amz-date, x-amz-content-sha256, x-amz-security-token and
// Authorization. The path must be percent-encoded and the query sorted by name. `now` is Unix time
// in seconds. libcurl is not used for signing, because its canonicalization of queries and headers
// differs between versions.
void sign_request(HttpRequest& request, const std::string& region,
                  const AwsCredentials& credentials, double now);

}  // namespace qkscope
