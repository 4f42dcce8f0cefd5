// Addresses of object stores (s3://bucket/path, gs://..., file:///path), and local folders.
#pragma once

#include <optional>
#include <string>

namespace qkscope {

struct StoreAddress {
  enum class AddressScheme { s3, gs, file };

  AddressScheme scheme = AddressScheme::file;
  std::string bucket;  // "" for file://
  std::string path;    // without leading and trailing slashes

  std::string to_string() const;
  // Returns the last component of the path, or the bucket if the path is empty.
  std::string last_path_component() const {
    return path.empty() ? bucket : path.substr(path.rfind('/') + 1);  // npos + 1 == 0
  }
  StoreAddress child(const std::string& name) const;
  // Returns the path in the form that Arrow expects: "bucket/path", or "/path" for file://.
  std::string arrow_path() const;
};

// Returns nullopt for a local path. Unknown schemes and missing buckets or paths are bad input.
std::optional<StoreAddress> parse_store_address(const std::string& text);

// Local folders below QKSCOPE_SCRATCH, else XDG_CACHE_HOME/qkscope, else ~/.cache/qkscope:
//
//   runs/HASH-RUN/       data root of a running capture
//   stores/HASH/...      downloaded files
//   results/HASH-NAME/   output files before their upload
//   sweeps/HASH/NAME/    folder of a sweep, without captures and statistics
std::string scratch_folder_of_run(const StoreAddress& address, const std::string& run);
std::string scratch_folder_of_downloads(const StoreAddress& address);
std::string scratch_folder_of_output(const StoreAddress& address, const std::string& name);
std::string scratch_folder_of_sweep(const StoreAddress& address);

}  // namespace qkscope
