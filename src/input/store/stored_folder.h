// A folder of files at an address, whole or not there at all:
//
//   ADDRESS/files/20261116T130501-9f3a.../l03h12q/data.parquet   one upload, under a unique name
//   ADDRESS/manifest/00000000.json                               its files: name, object, bytes,
//                                                                checksum
//
// The newest manifest is what is there. It is put last, and only where nobody else put one of its
// number: of two writers one succeeds, and what they wrote never mixes. A folder that is replaced
// stays readable for those who are reading it, until `qkscope gc` removes it.
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
inline constexpr char kParts[] = "parts";  // of a run that is going on (captures/stored_run.h)
inline constexpr char kRuns[] = "run";

}  // namespace store_layout

// Objects PREFIX/00000000.json, PREFIX/00000001.json and so on: the newest one counts, and the next
// one is whose who puts it first.
struct NumberedObject {
  std::size_t number = 0;
  std::string content;
};
std::string numbered_name(const std::string& prefix, std::size_t number);
std::optional<std::size_t> number_of(const std::string& name);
std::optional<NumberedObject> newest_object(ObjectStore& store, const std::string& prefix);

struct StoredFile {
  std::string name;    // in the folder
  std::string object;  // in the store
  ObjectContent content;
};

Json to_json(const StoredFile& file);
// What is not such an entry, or would lie outside of the folder, is bad input; `where` names the
// object that says so.
StoredFile stored_file(const Json& json, const std::string& where);

struct StoredManifest {
  std::string kind;  // capture, statistics, results, sweep; kRemoved: nothing is there any more
  std::string run;   // that made it
  std::vector<StoredFile> files;

  static constexpr char kRemoved[] = "removed";
  const StoredFile* find(const std::string& name) const;
};

std::string manifest_text(const StoredManifest& manifest);
StoredManifest parse_manifest(const std::string& text, const std::string& where);

// What is to be put at an address.
struct FolderUpload {
  std::string folder;  // of this machine; hidden names are left out
  std::string kind;
  std::string run;
  bool quiet = false;
  std::string without = {};               // a folder in it that is left out
  std::vector<StoredFile> in_store = {};  // are below the address already: named, not put again
};

class StoredFolder {
 public:
  // Reads the newest manifest.
  explicit StoredFolder(const StoreAddress& address);

  ObjectStore& store() const { return *store_; }
  const StoreAddress& address() const { return store_->address(); }
  bool there() const;
  const StoredManifest& manifest() const { return manifest_; }
  std::vector<std::string> names() const;
  // Changes when what is there does.
  std::string hash() const { return hash_; }

  // Where files are after fetch().
  std::string local_folder() const;
  // Afterwards these files, those of them that are there, are in local_folder(), each checked.
  void fetch(const std::vector<std::string>& names, bool quiet) const;
  void fetch_all(bool quiet) const { fetch(names(), quiet); }

  // Puts all files of a local folder and then the manifest. Bad input where another one did so
  // since the manifest was read, unless with the same files.
  void publish(const std::string& folder, const std::string& kind, const std::string& run,
               bool quiet);
  // The same; false where another one did so. Nothing is put where these very files are there.
  bool try_publish(const FolderUpload& upload);
  // From now on nothing is there.
  void hide(const std::string& run);

 private:
  void read_newest();
  // The files that the manifest names so far, from a local folder; it gets their checksums.
  void put_files(const std::string& folder, const std::string& prefix, bool quiet,
                 StoredManifest& manifest) const;
  bool put_manifest(const StoredManifest& manifest);
  void check_uploaded(const StoredManifest& manifest, const std::string& prefix) const;

  std::unique_ptr<ObjectStore> store_;
  std::size_t next_ = 0;  // number of the next manifest
  std::string hash_;
  StoredManifest manifest_;
};

// One that is there; else bad input that says whether it is not finished or nothing at all.
StoredFolder open_stored_folder(const StoreAddress& address);

// For commands that read a folder: a local path is returned as it is, of an address everything is
// fetched and the local folder returned.
std::string fetch_folder(const std::string& path_or_address, bool quiet);

}  // namespace qkscope
