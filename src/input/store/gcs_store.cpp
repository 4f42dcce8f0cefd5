// Google Cloud Storage (gs://), accessed through Arrow. Arrow has no conditional put for GCS, so
// writers coordinate through a lease object.
#include <arrow/filesystem/gcsfs.h>

#include "base/core/error.h"
#include "input/checkpoint/hub_cache.h"
#include "input/store/object_store.h"

namespace qkscope {
namespace {

// Environment variable that holds the address of a Google Cloud Storage emulator.
constexpr char kEmulator[] = "STORAGE_EMULATOR_HOST";

arrow::fs::GcsOptions make_gcs_options() {
  constexpr double kPatience = 60.0;  // seconds
  const auto emulator = environment_variable(kEmulator);
  auto options =
      emulator.empty() ? arrow::fs::GcsOptions::Defaults() : arrow::fs::GcsOptions::Anonymous();
  options.retry_limit_seconds = kPatience;
  if (emulator.empty()) return options;
  const auto scheme = emulator.find("://");
  options.scheme = scheme == std::string::npos ? "http" : emulator.substr(0, scheme);
  options.endpoint_override = scheme == std::string::npos ? emulator : emulator.substr(scheme + 3);
  return options;
}

class GcsStore : public ObjectStore {
 public:
  GcsStore(const StoreUri& address, std::shared_ptr<arrow::fs::FileSystem> files)
      : ObjectStore(address, std::move(files)) {}

  void check_access() {
    const auto info =
        value_or_throw(file_system().GetFileInfo(address().bucket), address().to_string());
    if (info.type() == arrow::fs::FileType::NotFound) throw_missing_bucket();
  }

  void remove(const std::string& name) override {
    const auto status = file_system().DeleteFile(object_path(name));
    if (!status.ok() && find(name)) throw_error(status, object_address(name));
  }

 protected:
  bool try_put_if_absent(const std::string& name, const std::string& content) override {
    const auto write = [this](const std::string& each, const std::string& text) {
      const auto output =
          value_or_throw(file_system().OpenOutputStream(object_path(each)), object_address(each));
      check_status(output->Write(text), object_address(each));
      check_status(output->Close(), object_address(each));
    };
    return put_with_lease({.read = [this](const std::string& each) { return read(each); },
                           .write = write,
                           .remove = [this](const std::string& each) { remove(each); }},
                          name, content);
  }

  [[noreturn]] void throw_error(const arrow::Status& status, const std::string& doing) override {
    const auto& text = status.message();
    const auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
    if (has("PERMISSION_DENIED") || has("UNAUTHENTICATED"))
      reject(
          "{}: the store refuses the credentials; check GOOGLE_APPLICATION_CREDENTIALS or "
          "'gcloud auth application-default login', and what they may do there",
          doing);
    if (has("OAuth2 access token"))
      reject(
          "{}: no credentials were found; set GOOGLE_APPLICATION_CREDENTIALS, or log in with "
          "'gcloud auth application-default login'",
          doing);
    if (has("bucket does not exist")) throw_missing_bucket();
    if (has("NOT_FOUND") || has("does not exist")) reject("{}: there is no such object", doing);
    constexpr std::size_t kLongest = 300;  // bytes; the client appends much detail
    throw_failure("{}: the store does not answer as it should: {}", doing,
                  text.substr(0, kLongest));
  }

 private:
  [[noreturn]] void throw_missing_bucket() const {
    reject("{}: there is no bucket '{}'; make it first, or check the name", address().to_string(),
           address().bucket);
  }
};

}  // namespace

std::unique_ptr<ObjectStore> open_gcs_store(const StoreUri& address) {
  auto files = arrow::fs::GcsFileSystem::Make(make_gcs_options());
  if (!files.ok())
    reject("{}: cannot set up the client of Google Cloud Storage: {}", address.to_string(),
           files.status().message());
  auto store = std::make_unique<GcsStore>(address, *files);
  store->check_access();
  return store;
}

}  // namespace qkscope
