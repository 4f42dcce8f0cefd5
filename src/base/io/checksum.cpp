#include "base/io/checksum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <vector>

#define XXH_INLINE_ALL  // header-only, no library to link
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/core/error.h"
#include "base/io/output_file.h"

namespace qkscope {
namespace {

constexpr std::uint64_t kReadWhole = std::uint64_t{1} << 30;
constexpr std::uint64_t kStride = std::uint64_t{16} << 20;
constexpr std::uint64_t kBlock = std::uint64_t{64} << 10;

// Adds bytes [begin, end) of a file to the checksum. Uses pread() instead of mmap(), so that a file
// truncated during the read causes an exception instead of SIGBUS.
void add_file_range(Checksum& sum, const FileDescriptor& file, const std::string& path,
                    std::uint64_t begin, std::uint64_t end) {
  std::vector<std::byte> buffer(std::min<std::uint64_t>(end - begin, std::uint64_t{1} << 20));
  while (begin < end) {
    const auto wanted = std::min<std::uint64_t>(end - begin, buffer.size());
    const auto count = ::pread(file.fd(), buffer.data(), wanted, static_cast<off_t>(begin));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_system_error("read", path, errno);
    if (count == 0) throw_failure("{}: became shorter while it was read", path);
    sum.add(std::span(buffer).first(static_cast<std::size_t>(count)));
    begin += static_cast<std::uint64_t>(count);
  }
}

// BLAKE2b (RFC 7693).
constexpr std::size_t kBlakeBlock = 128;  // bytes
constexpr int kBlakeRounds = 12;

constexpr std::array<std::uint64_t, 8> kBlakeInitial = {
    0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
    0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179};

constexpr std::uint8_t kBlakeOrder[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

using BlakeState = std::array<std::uint64_t, 8>;

void blake2b_compress(BlakeState& state, const char* block, std::uint64_t bytes_so_far, bool last) {
  std::array<std::uint64_t, 16> words;  // message words are little-endian
  std::memcpy(words.data(), block, kBlakeBlock);
  std::array<std::uint64_t, 16> v;
  std::copy(state.begin(), state.end(), v.begin());
  std::copy(kBlakeInitial.begin(), kBlakeInitial.end(), v.begin() + 8);
  v[12] ^= bytes_so_far;
  if (last) v[14] = ~v[14];
  const auto mix = [&](int a, int b, int c, int d, std::uint64_t x, std::uint64_t y) {
    v[a] += v[b] + x;
    v[d] = std::rotr(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = std::rotr(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = std::rotr(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = std::rotr(v[b] ^ v[c], 63);
  };
  for (int round = 0; round < kBlakeRounds; ++round) {
    const auto& s = kBlakeOrder[round % 10];
    for (int i = 0; i < 4; ++i) mix(i, i + 4, i + 8, i + 12, words[s[2 * i]], words[s[2 * i + 1]]);
    for (int i = 0; i < 4; ++i) {
      mix(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, words[s[8 + 2 * i]],
          words[s[9 + 2 * i]]);
    }
  }
  for (std::size_t i = 0; i < 8; ++i) state[i] ^= v[i] ^ v[i + 8];
}

}  // namespace

struct Checksum::State {
  XXH3_state_t xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh3);
}

Checksum::~Checksum() = default;

void Checksum::add(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const {
  return XXH3_64bits_digest(&state_->xxh3);
}

std::uint64_t checksum_of(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

std::string format_checksum(std::uint64_t checksum) {
  return fmt::format("{:016x}", checksum);
}

std::string file_fingerprint(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) throw_system_error("open", path, errno);
  struct stat status = {};
  if (::fstat(file.fd(), &status) != 0) throw_system_error("stat", path, errno);
  if (!S_ISREG(status.st_mode)) reject("{}: not a regular file", path);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  Checksum sum;
  add_file_range(sum, file, path, 0, size <= kReadWhole ? size : kStride);
  if (size > kReadWhole) {
    for (auto at = kStride; at + kBlock < size; at += kStride)
      add_file_range(sum, file, path, at, at + kBlock);
    add_file_range(sum, file, path, size - kBlock, size);
  }
  return fmt::format("{}-{}", size, format_checksum(sum.value()));
}

std::uint64_t blake2b_64(std::string_view message) {
  static_assert(std::endian::native == std::endian::little);
  BlakeState state = kBlakeInitial;
  state[0] ^= 0x01010000 ^ 8;  // parameter block: no key, 8-byte digest
  std::size_t done = 0;
  for (; message.size() - done > kBlakeBlock; done += kBlakeBlock) {
    blake2b_compress(state, message.data() + done, done + kBlakeBlock, false);
  }
  std::array<char, kBlakeBlock> rest{};
  std::copy(message.begin() + static_cast<std::ptrdiff_t>(done), message.end(), rest.begin());
  blake2b_compress(state, rest.data(), message.size(), true);
  return state[0];
}

}  // namespace qkscope
