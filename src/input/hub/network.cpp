// HTTP requests with libcurl, hashes with OpenSSL. Only this file translates libcurl errors.
#include <algorithm>
#include <exception>
#include <fstream>
#include <memory>
#include <mutex>
#include <string_view>

#include <curl/curl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <unistd.h>

#include "base/core/clock.h"
#include "base/core/error.h"
#include "base/core/lazy_init.h"
#include "input/hub/http.h"
#include "qkscope/version.h"

namespace qkscope {
namespace {

constexpr std::size_t kMaxBodyBytes = std::size_t{256} << 20;  // bytes of a response kept in memory
constexpr long kConnectSeconds = 20;
// Transfers below this average rate are aborted, so that a server that sends one byte per second
// cannot keep a connection open forever.
constexpr double kLeastBytesPerSecond = 4096;
constexpr long kBufferBytes = 512 << 10;  // buffer size in bytes, both directions

struct CurlListDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using HeaderList = std::unique_ptr<curl_slist, CurlListDeleter>;

// Per-thread curl handle, which keeps connections alive between requests. After fork(), the child
// creates its own handle and leaves the inherited one alone, because its connections belong to the
// parent.
class ThreadCurlHandle {
 public:
  ~ThreadCurlHandle() {
    if (handle_ != nullptr && process_ == ::getpid()) curl_easy_cleanup(handle_);
  }

  static CURL* get() {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    thread_local ThreadCurlHandle handle;
    return handle.reset();
  }

 private:
  CURL* reset() {
    if (handle_ == nullptr || process_ != ::getpid()) {
      handle_ = curl_easy_init();
      process_ = ::getpid();
    }
    if (handle_ == nullptr) throw_failure("libcurl: cannot start a connection: out of memory");
    curl_easy_reset(handle_);
    return handle_;
  }

  CURL* handle_ = nullptr;
  pid_t process_ = 0;
};

// State shared by the callbacks of one request. Exceptions must not propagate through C code, so
// they are stored in `error` and rethrown after libcurl returns.
struct RequestState {
  const HttpRequest& request;
  CURL* handle;
  HttpResponse response = {};
  std::ifstream upload = {};
  std::uint64_t upload_left = 0;
  std::exception_ptr error = {};
  Clock::time_point start = Clock::now();
};

void read_status_code(RequestState& state) {
  long status = 0;
  curl_easy_getinfo(state.handle, CURLINFO_RESPONSE_CODE, &status);
  state.response.status = static_cast<int>(status);
}

// Runs the body of a callback. If it throws, stores the exception in `state` and returns `failed`.
template <typename Body>
std::size_t run_callback(RequestState& state, std::size_t failed, const Body& body) {
  try {
    return body();
  } catch (...) {
    state.error = std::current_exception();
    return failed;
  }
}

std::size_t receive_header(char* data, std::size_t size, std::size_t count, void* user) {
  auto& state = *static_cast<RequestState*>(user);
  const std::string_view line(data, size * count);
  return run_callback(state, 0, [&] {
    if (line.starts_with("HTTP/")) state.response.headers.clear();
    state.response.add_header(line);
    return line.size();
  });
}

std::size_t receive_body(char* data, std::size_t size, std::size_t count, void* user) {
  auto& state = *static_cast<RequestState*>(user);
  const std::size_t bytes = size * count;
  return run_callback(state, 0, [&] {
    read_status_code(state);
    const bool wanted = state.response.status == 200 || state.response.status == 206;
    if (wanted && state.request.sink) {
      state.request.sink(state.response, std::as_bytes(std::span(data, bytes)));
      return bytes;
    }
    if (state.response.body.size() + bytes > kMaxBodyBytes)
      throw_failure("{}: the answer is longer than {} bytes", state.request.url.without_query(),
                    kMaxBodyBytes);
    state.response.body.append(data, bytes);
    return bytes;
  });
}

std::size_t send_body(char* data, std::size_t size, std::size_t count, void* user) {
  auto& state = *static_cast<RequestState*>(user);
  const auto wanted = std::min<std::uint64_t>(size * count, state.upload_left);
  state.upload.read(data, static_cast<std::streamsize>(wanted));
  if (static_cast<std::uint64_t>(state.upload.gcount()) != wanted) return CURL_READFUNC_ABORT;
  state.upload_left -= wanted;
  return run_callback(state, CURL_READFUNC_ABORT, [&] {
    if (state.request.sent) state.request.sent(state.request.upload.size - state.upload_left);
    return static_cast<std::size_t>(wanted);
  });
}

// Progress callback, which libcurl calls at least once a second: aborts slow or stopped transfers.
int should_abort(void* user, curl_off_t, curl_off_t received, curl_off_t, curl_off_t sent) {
  auto& state = *static_cast<RequestState*>(user);
  const auto* stop = state.request.stop;
  const auto allowed =
      state.request.stall_seconds + static_cast<double>(received + sent) / kLeastBytesPerSecond;
  state.response.too_slow = seconds_since(state.start) > allowed;
  return state.response.too_slow || (stop != nullptr && stop->load()) ? 1 : 0;
}

// libcurl calls this seek callback to restart an upload that has already begun.
int seek_body(void* user, curl_off_t offset, int origin) {
  auto& state = *static_cast<RequestState*>(user);
  if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  state.upload.clear();
  state.upload.seekg(static_cast<std::streamoff>(state.request.upload.offset) + offset);
  state.upload_left = state.request.upload.size - static_cast<std::uint64_t>(offset);
  return CURL_SEEKFUNC_OK;
}

const std::string& ca_bundle_path() {
  return lazy_init_lock_free([] {
    const char* own = curl_version_info(CURLVERSION_NOW)->cainfo;
    return find_ca_bundle(own == nullptr ? "" : own);
  });
}

void set_security_options(CURL* handle, const HttpRequest& request) {
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(handle, CURLOPT_SSL_VERIFYPEER, 1L);
  curl_easy_setopt(handle, CURLOPT_SSL_VERIFYHOST, 2L);
  if (const auto& file = ca_bundle_path(); !file.empty())
    curl_easy_setopt(handle, CURLOPT_CAINFO, file.c_str());
  curl_easy_setopt(handle, CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2);
  curl_easy_setopt(handle, CURLOPT_NETRC, CURL_NETRC_IGNORED);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_seconds));
  if (is_loopback(request.url)) curl_easy_setopt(handle, CURLOPT_NOPROXY, "*");
}

void set_curl_callbacks(RequestState& state) {
  CURL* handle = state.handle;
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, receive_header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, &state);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, receive_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &state);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, should_abort);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &state);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_BUFFERSIZE, kBufferBytes);
  curl_easy_setopt(handle, CURLOPT_UPLOAD_BUFFERSIZE, kBufferBytes);
}

void set_request_body(RequestState& state) {
  const auto& request = state.request;
  CURL* handle = state.handle;
  const auto send_text = [&] {
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, request.body.data());
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.body.size()));
  };
  if (request.method == "POST") {
    // Avoid kept-alive connections: libcurl silently resends a POST if such a connection is closed.
    curl_easy_setopt(handle, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(handle, CURLOPT_POST, 1L);
    send_text();
  } else if (request.method == "PUT" && request.upload.path.empty()) {
    send_text();
    curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, "PUT");
  } else if (request.method == "PUT") {
    state.upload.open(request.upload.path, std::ios::binary);
    if (!state.upload) throw_system_error("open", request.upload.path, errno);
    seek_body(&state, 0, SEEK_SET);
    curl_easy_setopt(handle, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(handle, CURLOPT_READFUNCTION, send_body);
    curl_easy_setopt(handle, CURLOPT_READDATA, &state);
    curl_easy_setopt(handle, CURLOPT_SEEKFUNCTION, seek_body);
    curl_easy_setopt(handle, CURLOPT_SEEKDATA, &state);
    curl_easy_setopt(handle, CURLOPT_INFILESIZE_LARGE,
                     static_cast<curl_off_t>(request.upload.size));
  } else if (request.method == "DELETE") {
    curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, "DELETE");
  } else {
    QKSCOPE_ASSERT(request.method == "GET");
  }
}

HeaderList make_curl_headers(const HttpRequest& request) {
  curl_slist* list = nullptr;
  for (const auto& [name, value] : request.headers)
    list = curl_slist_append(list, fmt::format("{}: {}", name, value).c_str());
  return HeaderList(curl_slist_append(list, "Expect:"));  // disable "Expect: 100-continue"
}

// Returns false for errors that a retry cannot fix: bad certificates, invalid URLs, unknown hosts.
bool is_transient_curl_error(CURLcode code) {
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_ABORTED_BY_CALLBACK:
    case CURLE_READ_ERROR:
      return false;
    default:
      return true;
  }
}

std::string certificate_advice() {
  const auto& file = ca_bundle_path();
  if (file.empty())
    return fmt::format(
        " (no certificates of authorities were found; looked for {}; install ca-certificates, or "
        "set SSL_CERT_FILE)",
        fmt::join(kCertificatePaths, ", "));
  return fmt::format(" (checked against {}; SSL_CERT_FILE names another file)", file);
}

}  // namespace

HttpResponse perform_http_request(const HttpRequest& request) {
  RequestState state{.request = request, .handle = ThreadCurlHandle::get()};
  const auto address = request.url.to_string();
  const auto agent = fmt::format("qkscope/{}", version_string());
  curl_easy_setopt(state.handle, CURLOPT_URL, address.c_str());
  curl_easy_setopt(state.handle, CURLOPT_USERAGENT, agent.c_str());
  set_security_options(state.handle, request);
  set_curl_callbacks(state);
  set_request_body(state);
  const auto headers = make_curl_headers(request);
  curl_easy_setopt(state.handle, CURLOPT_HTTPHEADER, headers.get());
  char reason[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(state.handle, CURLOPT_ERRORBUFFER, reason);
  const CURLcode code = curl_easy_perform(state.handle);
  if (state.error) std::rethrow_exception(state.error);
  read_status_code(state);
  if (code == CURLE_OK) return std::move(state.response);
  state.response.status = 0;
  state.response.fault = *reason != '\0' ? reason : curl_easy_strerror(code);
  if (code == CURLE_SSL_CACERT_BADFILE || code == CURLE_PEER_FAILED_VERIFICATION)
    state.response.fault += certificate_advice();
  state.response.transient = is_transient_curl_error(code);
  if (code == CURLE_ABORTED_BY_CALLBACK && state.response.too_slow) {
    state.response.fault = fmt::format("slower than {} bytes per second over {:.0f} seconds",
                                       kLeastBytesPerSecond, seconds_since(state.start));
    state.response.transient = true;
  }
  return std::move(state.response);
}

void Digest::HashContextDeleter::operator()(EVP_MD_CTX* context) const {
  EVP_MD_CTX_free(context);
}

Digest::Digest(HashAlgorithm kind) : context_(EVP_MD_CTX_new()) {
  const EVP_MD* method = kind == HashAlgorithm::sha1 ? EVP_sha1() : EVP_sha256();
  if (EVP_DigestInit_ex(context_.get(), method, nullptr) != 1)
    throw_failure("OpenSSL: this build of it has no {}",
                  kind == HashAlgorithm::sha1 ? "SHA-1" : "SHA-256");
}

void Digest::update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

std::string Digest::finalize_hex() {
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_.get(), sum, &size);
  return to_hex({sum, size});
}

std::string to_hex(std::span<const unsigned char> bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

}  // namespace qkscope
