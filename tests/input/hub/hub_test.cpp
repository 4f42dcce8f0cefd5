// URLs, certificates, retry delays and repository listings.
#include <algorithm>
#include <cstdlib>

#include <gmock/gmock.h>

#include "base/io/output_file.h"
#include "error_message.h"
#include "input/hub/client.h"
#include "input/hub/http.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

TEST(Url, AreParsedIntoParts) {
  const auto url = parse_url("HTTPS://Hub.Example:8443/a/b?c=d#e");
  EXPECT_EQ(url.scheme, "https");
  EXPECT_EQ(url.host, "hub.example");
  EXPECT_EQ(url.port, 8443);
  EXPECT_EQ(url.target, "/a/b?c=d");
  EXPECT_EQ(url.to_string(), "https://hub.example:8443/a/b?c=d");
  EXPECT_EQ(url.without_query(), "https://hub.example:8443/a/b");
  EXPECT_EQ(parse_url("https://h").to_string(), "https://h/");
  EXPECT_EQ(parse_url("https://h?q").to_string(), "https://h/?q");
  EXPECT_EQ(parse_url("http://[::1]:80/").to_string(), "http://[::1]/");
}

TEST(Url, InvalidAddressesAreRejected) {
  for (const std::string text :
       {"", "hub.example", "ftp://h/", "file:///etc/passwd", "https://", "https://user:pw@h/",
        "https://h:0/", "https://h:x/", "https://h:99999/", "https://h /", "https://h/\r\nX: y"})
    bad_input_message([&] { parse_url(text); });
  for (const std::string text :
       {"https://me:s3cret@host/", "https://me:s3cret@host:99999/x", "https://s3cret@host",
        "me:s3cret@host", "https://host:port/?key=s3cret", "ftp://me:s3cr/s3cret@host"}) {
    const auto message = bad_input_message([&] { parse_url(text); });
    EXPECT_EQ(message.find("s3cr"), std::string::npos) << message;
  }
}

TEST(Url, RelativeLocationsAreResolved) {
  const auto base = parse_url("https://h/a/b?q=1");
  EXPECT_EQ(resolve_url(base, "/c/d?x").to_string(), "https://h/c/d?x");
  EXPECT_EQ(resolve_url(base, "c").to_string(), "https://h/a/c");
  EXPECT_EQ(resolve_url(base, "//other/c").to_string(), "https://other/c");
  EXPECT_EQ(resolve_url(base, "https://other:1/c?u=http://x/").to_string(),
            "https://other:1/c?u=http://x/");
  EXPECT_EQ(resolve_url(base, "/c?u=http://x/").to_string(), "https://h/c?u=http://x/");
}

TEST(Url, AreComparedBySchemeHostAndPort) {
  const auto at = [](const std::string& text) { return parse_url(text); };
  EXPECT_TRUE(is_same_server(at("https://h/a"), at("https://H:443/b")));
  EXPECT_FALSE(is_same_server(at("https://h/"), at("http://h/")));
  EXPECT_FALSE(is_same_server(at("https://h/"), at("https://h:444/")));
  EXPECT_FALSE(is_same_server(at("https://h/"), at("https://h.evil/")));
  for (const std::string host : {"localhost", "127.0.0.1", "127.1.2.3", "[::1]"})
    EXPECT_TRUE(is_loopback(at("http://" + host + "/"))) << host;
  for (const std::string host : {"127.evil.example", "localhost.example", "10.0.0.1", "[::2]"})
    EXPECT_THAT(bad_input_message([&] { refuse_plain_http(at("http://" + host + "/"), "here"); }),
                HasSubstr("is not encrypted"))
        << host;
}

TEST(Url, PercentEncodingKeepsTheGivenCharacters) {
  EXPECT_EQ(percent_encode("refs/pr/3"), "refs%2Fpr%2F3");
  EXPECT_EQ(percent_encode("a b/ü?.json", "/"), "a%20b/%C3%BC%3F.json");
}

TEST(Headers, ValuesAreTrimmedAndNamesAreLowerCase) {
  HttpResponse response;
  for (const auto* line : {"Location:\r\n", "ETag: \t \r\n", "X-Name:  two words \r\n",
                           "Last:", "\r\n", "HTTP/1.1 200 OK\r\n"})
    response.add_header(line);
  EXPECT_EQ(response.headers,
            (std::map<std::string, std::string>{
                {"location", ""}, {"etag", ""}, {"x-name", "two words"}, {"last", ""}}));
}

TEST(Backoff, RetryAfterIsSecondsOrADate) {
  EXPECT_EQ(parse_retry_after("", 0), std::nullopt);
  EXPECT_EQ(parse_retry_after("120", 0), 120.0);
  EXPECT_EQ(parse_retry_after("soon", 0), std::nullopt);
  EXPECT_EQ(parse_retry_after("-5", 0), std::nullopt);
  EXPECT_EQ(parse_retry_after("99999999999999999999", 0), std::nullopt);
  EXPECT_EQ(parse_retry_after("Thu, 01 Jan 1970 00:01:40 GMT", 40), 60.0);
  EXPECT_EQ(parse_retry_after("Thu, 01 Jan 1970 00:01:40 GMT", 400), 0.0);
}

TEST(RemoteTree, UnsafePathsAreRejected) {
  for (const std::string path : {"a", "a/b.json", "..a/b..", "ü/x", ".gitattributes"})
    EXPECT_TRUE(is_safe_path(path)) << path;
  for (const std::string path :
       {"", "/a", "a/", "a//b", "..", "../a", "a/../b", "a/..", ".", "a\\b", "a\nb"})
    EXPECT_FALSE(is_safe_path(path)) << path;
  EXPECT_FALSE(is_safe_path(std::string("a\0b", 3)));
  EXPECT_FALSE(is_safe_path(std::string(300, 'x')));
}

TEST(RemoteTree, ListingSurvivesARoundTripThroughTheCache) {
  const TemporaryFolder folder;
  const std::string commit(40, 'a');
  EXPECT_FALSE(read_cached_file_list(folder.path(), commit));
  const RemoteTree tree = {{.path = "a/b.json", .size = 3, .git_sha1 = std::string(40, '1')},
                           {.path = "model.safetensors",
                            .size = 5,
                            .git_sha1 = std::string(40, '2'),
                            .sha256 = std::string(64, '3'),
                            .xet_hash = std::string(64, '4')}};
  write_cached_file_list(folder.path(), commit, tree);
  const auto loaded = read_cached_file_list(folder.path(), commit);
  ASSERT_TRUE(loaded);
  ASSERT_EQ(loaded->size(), 2U);
  EXPECT_EQ((*loaded)[0].etag(), std::string(40, '1'));
  EXPECT_EQ((*loaded)[1].etag(), std::string(64, '3'));
  EXPECT_EQ((*loaded)[1].size, 5U);
  EXPECT_EQ((*loaded)[1].xet_hash, std::string(64, '4'));
  for (const std::string damaged :
       {"", "{", "[]", "{\"format_version\": 2, \"files\": {}}", "{\"format_version\": 1}",
        "{\"format_version\": 1, \"files\": {\"../x\": {\"size\": 1}}}"}) {
    write_file(folder.file("trees/" + commit + ".json"), damaged);
    EXPECT_FALSE(read_cached_file_list(folder.path(), commit)) << damaged;
  }
}

TEST(Certificates, AreFoundInThePathsOfLinuxDistributions) {
  const TemporaryFolder folder;
  write_file(folder.file("own.crt"), "certificates");
  setenv("SSL_CERT_FILE", "/chosen.pem", 1);
  EXPECT_EQ(find_ca_bundle(folder.file("own.crt")), "/chosen.pem");
  unsetenv("SSL_CERT_FILE");
  EXPECT_EQ(find_ca_bundle(folder.file("own.crt")), folder.file("own.crt"));
  // A libcurl built for another distribution: its default path is missing, this machine's exists.
  const auto found = find_ca_bundle("/absent/ca-bundle.crt");
  EXPECT_EQ(found, find_ca_bundle(""));
  EXPECT_TRUE(found.empty() || std::ranges::count(kCertificatePaths, found) == 1) << found;
}

}  // namespace
}  // namespace qkscope
