// Object stores: put, get, list, remove, and conditional puts.
#include "input/store/object_store.h"

#include <atomic>
#include <ctime>
#include <thread>

#include <gmock/gmock.h>

#include "base/io/checksum.h"
#include "error_message.h"
#include "qkscope/experimental/text.h"
#include "test_store.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

TEST(ObjectStore, GetReturnsTheContentThatWasPut) {
  const TestStore place;
  const auto store = open_store(place.address());
  const std::string large(std::size_t{12} << 20, 'x');
  for (const auto& text : {std::string(), std::string("some\nbytes"), large}) {
    const auto content = store->put("a/b c/x", place.written("from", text));
    EXPECT_EQ(content, (ObjectFingerprint{text.size(), format_checksum(checksum_of(text))}));
    store->download_to_file("a/b c/x", place.file("to"), content);
    EXPECT_EQ(read_text_file(place.file("to")), text);
    EXPECT_EQ(store->read("a/b c/x"), text);
  }
}

TEST(ObjectStore, ListsBelowAPrefix) {
  const TestStore place;
  const auto store = open_store(place.address());
  EXPECT_TRUE(store->list("").empty());
  EXPECT_TRUE(store->put_if_absent("a/2", "22"));
  EXPECT_TRUE(store->put_if_absent("a/1", "1"));
  EXPECT_TRUE(store->put_if_absent("ab", "other"));
  const auto below = store->list("a");
  ASSERT_EQ(below.size(), 2U);
  EXPECT_EQ(below[0].name, "a/1");
  EXPECT_EQ(below[1].name, "a/2");
  EXPECT_EQ(below[1].bytes, 2U);
  EXPECT_NEAR(below[1].modified, static_cast<double>(std::time(nullptr)), 60.0);
  EXPECT_EQ(store->list("").size(), 3U);
  remove_objects(*store, {"a/1", "a/2", "never"});
  EXPECT_TRUE(store->list("a").empty());
  EXPECT_EQ(store->list("").size(), 1U);
  EXPECT_FALSE(store->read("a/1"));
}

TEST(ObjectStore, ExactlyOneConditionalPutSucceeds) {
  const TestStore place;
  constexpr int kWriters = 8;
  std::atomic<int> first{0};
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i)
    writers.emplace_back([&, i] {
      const auto store = open_store(place.address());
      if (store->put_if_absent("name", "writer " + std::to_string(i))) ++first;
    });
  for (auto& writer : writers) writer.join();
  EXPECT_EQ(first, 1);
}

// If the response of a put is lost, the retry finds the object.
TEST(ObjectStore, APutOfIdenticalContentCountsAsSuccess) {
  const TestStore place;
  const auto store = open_store(place.address());
  EXPECT_TRUE(store->put_if_absent("name", "content"));
  EXPECT_TRUE(store->put_if_absent("name", "content"));
  EXPECT_FALSE(store->put_if_absent("name", "another"));
  EXPECT_EQ(store->read("name"), "content");
}

TEST(ObjectStore, CorruptObjectsAreDetected) {
  const TestStore place;
  const auto store = open_store(place.address());
  const auto content = store->put("x", place.written("whole", "all of it"));
  store->put("x", place.written("cut", "all"));
  EXPECT_THAT(bad_input_message([&] { store->download_to_file("x", place.file("to"), content); }),
              HasSubstr("x: is damaged: 3 bytes"));
  EXPECT_FALSE(std::filesystem::exists(place.file("to")));
}

TEST(ObjectStore, MissingObjectsAreReportedOrIgnored) {
  const TestStore place;
  const auto store = open_store(place.address());
  EXPECT_FALSE(store->read("x"));
  bad_input_message([&] { store->download_to_file("x", place.file("to"), {}); });
  EXPECT_FALSE(std::filesystem::exists(place.file("to")));
}

}  // namespace
}  // namespace qkscope
