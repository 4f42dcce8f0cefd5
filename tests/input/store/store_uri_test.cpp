// Addresses of object stores.
#include <gmock/gmock.h>

#include "error_message.h"
#include "input/store/object_store.h"

namespace qkscope {
namespace {

using testing::HasSubstr;
using UriScheme = StoreUri::UriScheme;

TEST(StoreUri, AreParsedIntoParts) {
  const auto address = parse_store_uri("s3://bucket/a/b/");
  ASSERT_TRUE(address);
  EXPECT_EQ(address->scheme, UriScheme::s3);
  EXPECT_EQ(address->bucket, "bucket");
  EXPECT_EQ(address->path, "a/b");
  EXPECT_EQ(address->to_string(), "s3://bucket/a/b");
  EXPECT_EQ(address->arrow_path(), "bucket/a/b");
  EXPECT_EQ(address->last_path_component(), "b");
  EXPECT_EQ(parse_store_uri("gs://bucket")->to_string(), "gs://bucket");
  EXPECT_EQ(parse_store_uri("gs://bucket")->last_path_component(), "bucket");
  EXPECT_EQ(parse_store_uri("file:///tmp/x")->arrow_path(), "/tmp/x");
}

TEST(StoreUri, LocalPathsAreNotAddresses) {
  for (const std::string path : {"data", "/tmp/x", "../a:b", "org/name@main", "C:x", "a//b", ""})
    EXPECT_FALSE(parse_store_uri(path)) << path;
}

TEST(StoreUri, InvalidAddressesAreRejected) {
  const auto message = [](const std::string& text) {
    return bad_input_message([&] { parse_store_uri(text); });
  };
  EXPECT_THAT(message("ftp://host/x"), HasSubstr("unknown scheme 'ftp'; expected s3://"));
  EXPECT_THAT(message("s3://"), HasSubstr("is no bucket"));
  EXPECT_THAT(message("s3://key:secret@bucket/x"), HasSubstr("is no bucket"));
  EXPECT_THAT(message("s3://bucket/a/../b"), HasSubstr("'..' is no name"));
  EXPECT_THAT(message("s3://bucket/a//b"), HasSubstr("is no name"));
  EXPECT_THAT(message("file://host/x"), HasSubstr("names a host"));
  EXPECT_THAT(message("file:///"), HasSubstr("has no path"));
}

}  // namespace
}  // namespace qkscope
