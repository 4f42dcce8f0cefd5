// Base of all object stores: reads, writes and lists through an arrow::fs::FileSystem. Derived
// classes implement the conditional put and the removal.
#pragma once

#include <memory>
#include <string>

#include <arrow/filesystem/filesystem.h>

#include "input/store/object_store.h"

namespace qkscope {

class ArrowStore : public ObjectStore {
 public:
  ArrowStore(StoreAddress address, std::shared_ptr<arrow::fs::FileSystem> files);

  const StoreAddress& address() const override { return address_; }
  std::optional<StoredObject> find(const std::string& name) override;
  std::optional<std::string> read(const std::string& name) override;
  void get(const std::string& name, const std::string& file,
           const std::optional<ObjectContent>& expected) override;
  ObjectContent put(const std::string& name, const std::string& file) override;
  bool put_if_absent(const std::string& name, const std::string& content) override {
    return put_new(name, content) || read(name) == content;
  }
  std::vector<StoredObject> list(const std::string& prefix) override;

 protected:
  // Attempts the conditional put once; returns false if the object exists.
  virtual bool put_new(const std::string& name, const std::string& content) = 0;
  // Creates parent folders before an object is written, in stores that have folders.
  virtual void prepare(const std::string& /*name*/) {}
  // Throws the error that a status means in this store.
  [[noreturn]] virtual void throw_status(const arrow::Status& status, const std::string& doing) = 0;

  std::string path_of(const std::string& name) const;
  arrow::fs::FileSystem& files() { return *files_; }
  void check(const arrow::Status& status, const std::string& doing) {
    if (!status.ok()) throw_status(status, doing);
  }
  template <typename T>
  T take(arrow::Result<T> result, const std::string& doing) {
    check(result.status(), doing);
    return std::move(result).ValueUnsafe();
  }

 private:
  // Downloads once. The file is created only if the content is as expected.
  ObjectContent fetch_once(const std::string& name, const std::string& file,
                           const std::optional<ObjectContent>& expected);

  StoreAddress address_;
  std::shared_ptr<arrow::fs::FileSystem> files_;
};

std::unique_ptr<ObjectStore> open_local_store(const StoreAddress& address);
std::unique_ptr<ObjectStore> open_s3_store(const StoreAddress& address);
std::unique_ptr<ObjectStore> open_gcs_store(const StoreAddress& address);

}  // namespace qkscope
