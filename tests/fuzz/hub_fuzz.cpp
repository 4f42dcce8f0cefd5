// Responses of a Hub: throw an Error, or give listings with safe paths and names. The HTTP exchange
// is replaced: each response is the input up to a byte 0xFF; its first byte selects the status,
// lines up to an empty line are headers, and the rest is the body.
#include <array>
#include <cstdint>
#include <string_view>

#include "base/core/error.h"
#include "expect.h"
#include "input/checkpoint/hub_cache.h"
#include "input/hub/client.h"

namespace {

std::string_view answers;  // unused part of the input

}  // namespace

namespace qkscope {

// Replaces perform_http_request() of network.cpp.
HttpResponse perform_http_request(const HttpRequest& request) {
  FUZZ_EXPECT(request.url.host == "hub.example");  // no response may lead to another server
  constexpr std::array kStatus = {200, 200, 200, 200, 200, 302, 307, 401, 404, 416, 429, 500, 0};
  const auto end = std::min(answers.find('\xff'), answers.size());
  auto answer = answers.substr(0, end);
  answers.remove_prefix(std::min(end + 1, answers.size()));
  HttpResponse response;
  if (answer.empty()) return response;
  response.status = kStatus[static_cast<unsigned char>(answer.front()) % kStatus.size()];
  answer.remove_prefix(1);
  while (!answer.empty()) {
    const auto line = answer.substr(0, answer.find('\n'));
    answer.remove_prefix(std::min(line.size() + 1, answer.size()));
    if (line.empty()) break;
    response.add_header(line);
  }
  response.body = answer;
  return response;
}

}  // namespace qkscope

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qkscope;
  answers = {reinterpret_cast<const char*>(data), size};
  const HubClient client({.endpoint = parse_url("https://hub.example"),
                          .token = "hf_x",
                          .attempts = 2,
                          .first_wait = 0.0,
                          .longest_wait = 0.0});
  const Repository repository{{RepositoryKind::model, "org/name"}};
  try {
    const auto commit = fetch_commit(client, repository, "main");
    FUZZ_EXPECT(is_commit_hash(commit));
    for (const auto& file : fetch_tree(client, repository, commit)) {
      FUZZ_EXPECT(is_safe_path(file.path));
      FUZZ_EXPECT(file.etag().find_first_not_of("0123456789abcdef") == std::string::npos);
    }
    fetch_branches(client, repository);
  } catch (const Error&) {  // of either kind: bad input if the name or token is wrong
  }
  return 0;
}
