// Addresses of object stores: s3://bucket/path, gs://bucket/path and file:///path.
#pragma once

#include <optional>
#include <string>

namespace qkscope {

struct StoreAddress {
  enum class Scheme { s3, gs, file };

  Scheme scheme = Scheme::file;
  std::string bucket;  // "" for file://
  std::string path;    // without leading and trailing slashes

  std::string to_string() const;
  std::string last_name() const;  // last component of the path, else the bucket
  StoreAddress below(const std::string& name) const;
  // Path for Arrow: "bucket/path", or "/path" for file://.
  std::string arrow_path() const;
};

// Returns nullopt for a local path. Throws bad input for other schemes and if bucket or path are
// missing.
std::optional<StoreAddress> parse_store_address(const std::string& text);

}  // namespace qkscope
