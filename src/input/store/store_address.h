// Addresses of object stores: s3://bucket/path, gs://bucket/path and file:///path.
#pragma once

#include <optional>
#include <string>

namespace qkscope {

struct StoreAddress {
  enum class Scheme { s3, gs, file };

  Scheme scheme = Scheme::file;
  std::string bucket;  // "" for file://
  std::string path;    // in the bucket, without slashes at its ends; of file:// from the root on

  std::string to_string() const;
  std::string last_name() const;  // of the path, else the bucket
  StoreAddress below(const std::string& name) const;
  // Where Arrow finds it: "bucket/path", or "/path".
  std::string arrow_path() const;
};

// Nothing for a local path. Schemes that are not ours, and addresses without a bucket or a path,
// are bad input.
std::optional<StoreAddress> parse_store_address(const std::string& text);

}  // namespace qkscope
