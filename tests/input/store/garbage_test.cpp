// Garbage collection in an object store.
#include <algorithm>
#include <ctime>

#include <gmock/gmock.h>

#include "base/io/folder.h"
#include "input/store/stored_folder.h"
#include "test_store.h"

namespace qkscope {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;
using testing::UnorderedElementsAre;

class Garbage : public testing::Test {
 protected:
  std::string local(const std::string& content) {
    auto folder = place_.file("local");
    make_folders(folder);
    write_file(folder + "/file", content);
    return folder;
  }
  void put(const std::string& name, const std::string& content = "x") {
    ASSERT_TRUE(store_->put_if_absent(name, content));
  }
  std::vector<std::string> found(double older_than = 0.0) {
    std::vector<std::string> names;
    // Allows for a server clock that is slightly ahead.
    const auto now = static_cast<double>(std::time(nullptr)) + 5.0;
    for (const auto& object : find_garbage_objects(*store_, now, older_than))
      names.push_back(object.name);
    return names;
  }

  TestStore place_;
  std::unique_ptr<ObjectStore> store_ = open_store(place_.address());
};

TEST_F(Garbage, IncludesUnreferencedUploads) {
  StoredFolder(place_.address()).publish(local("one"), "results", "a", true);
  EXPECT_THAT(found(), IsEmpty());
  put("files/20261116T130501-9f3a01c2d4e5f607/file");
  EXPECT_THAT(found(), ElementsAre("files/20261116T130501-9f3a01c2d4e5f607/file"));
  put("manifest/00000007.json.lease");
  EXPECT_EQ(found().size(), 2U);
  store_->remove("manifest/00000007.json.lease");
  EXPECT_THAT(found(3600.0), IsEmpty());
  // The replaced upload and its manifest are garbage.
  StoredFolder(place_.address()).publish(local("two"), "results", "b", true);
  EXPECT_EQ(found().size(), 3U);
  remove_objects(*store_, found());
  EXPECT_THAT(found(), IsEmpty());
  StoredFolder(place_.address()).fetch_all_files(true);
}

TEST_F(Garbage, ExcludesForeignObjects) {
  for (const std::string name :
       {"x", "files/w", "files/x/y", "manifest/x.json", "parts/x/y", "parts/run/x", "a/b/c"})
    put(name);
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Garbage, IncludesPartsOfFinishedRunsOnly) {
  const std::string going = "parts/20261116T130501-9f3a01c2d4e5f607/00000-of-00001/";
  const std::string old = "parts/20261115T130501-9f3a01c2d4e5f607/00000-of-00001/";
  put("parts/run/00000000.json", R"({"run": "20261115T130501-9f3a01c2d4e5f607"})");
  put("parts/run/00000001.json", R"({"run": "20261116T130501-9f3a01c2d4e5f607"})");
  put(old + "00000000-a.seg");
  put(going + "00000000-a.seg");
  put(going + "00000000-b.seg");
  put(going + "00000000.json",
      R"({"line": "", "files": [{"name": "s", "object": ")" + going + R"(00000000-a.seg"}]})");
  EXPECT_THAT(found(), UnorderedElementsAre("parts/run/00000000.json", old + "00000000-a.seg",
                                            going + "00000000-b.seg"));
  // A manifest finishes the run, so all of its parts are garbage.
  StoredFolder(place_.address())
      .publish(local("x"), "capture", "20261116T130501-9f3a01c2d4e5f607", true);
  const auto all = found();
  EXPECT_THAT(all, Each(StartsWith("parts/")));
  EXPECT_EQ(all.size(), 6U);
}

TEST_F(Garbage, IsLimitedToTheAddress) {
  put("sweep/a/files/20261116T130501-9f3a01c2d4e5f607/x");
  put("sweep/b/files/20261116T130501-9f3a01c2d4e5f607/x");
  put("sweep/b/manifest/00000000.json",
      R"({"run": "r", "files": [{"object": "files/20261116T130501-9f3a01c2d4e5f607/x"}]})");
  EXPECT_THAT(found(), ElementsAre("sweep/a/files/20261116T130501-9f3a01c2d4e5f607/x"));
}

// The manifest of a sweep references files of its runs, even after a run replaced them.
TEST_F(Garbage, ExcludesFilesReferencedByAParentManifest) {
  put("sweep/runs/a/files/20261116T130501-9f3a01c2d4e5f607/x");
  put("sweep/runs/a/manifest/00000001.json", R"({"run": "r", "files": []})");
  EXPECT_EQ(found().size(), 1U);
  put("sweep/manifest/00000000.json",
      R"({"run": "r", "files": [{"object": "runs/a/files/20261116T130501-9f3a01c2d4e5f607/x"}]})");
  EXPECT_THAT(found(), IsEmpty());
}

}  // namespace
}  // namespace qkscope
