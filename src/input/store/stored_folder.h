// A folder of files that is published to an object store atomically:
//
//   ADDRESS/files/20261116T130501-9f3a.../l03h12q/data.parquet   one upload under a unique name
//   ADDRESS/manifest/00000000.json                               its files: name, object, bytes,
//                                                                checksum
//
// The newest manifest defines the content. Each writer puts its manifest last and only if no other
// writer has put one of the same number, so that uploads never mix. A replaced folder stays
// readable for current readers until `qkscope gc` removes it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/json_fwd.h"
#include "input/store/object_store.h"

namespace qkscope {

namespace store_layout {

inline constexpr char kManifests[] = "manifest";
inline constexpr char kFiles[] = "files";
inline constexpr char kParts[] = "parts";  // of a running capture
inline constexpr char kRuns[] = "run";

}  // namespace store_layout

// One of the objects PREFIX/00000000.json, PREFIX/00000001.json, ...; only the newest is valid. The
// first writer of the next number wins.
struct VersionedObject {
  std::size_t number = 0;
  std::string content;
};
std::string versioned_object_name(const std::string& prefix, std::size_t number);
std::optional<std::size_t> parse_object_version(const std::string& name);
std::optional<VersionedObject> read_newest_object(ObjectStore& store, const std::string& prefix);

struct ManifestEntry {
  std::string name;    // path in the folder
  std::string object;  // name in the store
  ObjectFingerprint content;
};

Json to_json(const ManifestEntry& file);
// Parses one entry of a manifest. Throws a bad-input error that starts with `where` if the entry is
// malformed or points outside the folder.
ManifestEntry parse_manifest_entry(const Json& json, const std::string& where);

struct StoredManifest {
  std::string kind;  // capture, statistics, results, sweep, or kRemoved
  std::string run;   // run that produced the folder
  std::vector<ManifestEntry> files;

  static constexpr char kRemoved[] = "removed";
  const ManifestEntry* find_file(const std::string& name) const;
};

std::string serialize_manifest(const StoredManifest& manifest);
StoredManifest parse_manifest(const std::string& text, const std::string& where);

struct FolderUpload {
  std::string folder;  // local folder; hidden files are skipped
  std::string kind;
  std::string run;
  bool quiet = false;
  std::string without = {};                  // subfolder to skip
  std::vector<ManifestEntry> in_store = {};  // already in the store, not uploaded
};

class StoredFolder {
 public:
  explicit StoredFolder(const StoreUri& address);

  ObjectStore& object_store() const { return *store_; }
  const StoreUri& address() const { return store_->address(); }
  bool is_published() const { return manifest_.kind != StoredManifest::kRemoved; }
  const StoredManifest& manifest() const { return manifest_; }
  std::vector<std::string> file_names() const;
  // Hash of the manifest, which changes with the content of the folder.
  std::string manifest_hash() const { return hash_; }

  std::string local_folder() const { return scratch_folder_for_downloads(address()) + "/" + hash_; }
  // Downloads and verifies the given files; names that are not in the manifest are ignored.
  void fetch_files(const std::vector<std::string>& names, bool quiet) const;
  void fetch_all_files(bool quiet) const { fetch_files(file_names(), quiet); }

  // Uploads all files of a local folder, then the manifest. Throws a bad-input error if another
  // writer has published different files since the manifest was read.
  void publish(const std::string& folder, const std::string& kind, const std::string& run,
               bool quiet);
  // Like publish(), but returns false if another writer was first. Skips files in upload.in_store.
  bool try_publish(const FolderUpload& upload);
  void mark_removed(const std::string& run);

 private:
  void read_newest_manifest();
  // Uploads the files of the manifest from a local folder, fills in their checksums and verifies
  // their sizes in the store.
  void upload_files(const std::string& folder, const std::string& prefix, bool quiet,
                    StoredManifest& manifest) const;
  bool put_manifest(const StoredManifest& manifest);

  std::unique_ptr<ObjectStore> store_;
  std::size_t next_ = 0;  // number of the next manifest
  std::string hash_;
  StoredManifest manifest_;
};

// Opens an existing folder. Throws a bad-input error if the address has no finished folder.
StoredFolder open_stored_folder(const StoreUri& address);

// Returns the objects in stored folders below the store's address that neither the newest manifest
// nor the current run references and that are at least `older_than` seconds old. Ignores objects
// whose names qkscope did not generate.
std::vector<StoredObject> find_garbage_objects(ObjectStore& store, double now, double older_than);

// Downloads a published folder and returns the local copy. A local path is returned unchanged.
std::string fetch_stored_folder(const std::string& path_or_uri, bool quiet);

}  // namespace qkscope
