// A pickle is a sequence of opcodes, each a byte and an argument whose length the opcode
// determines. PyTorch keeps it in a zip file with uncompressed members, as NAME/data.pkl.
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "mutate_structure.h"

namespace qkscope {
namespace {

template <typename Integer>
std::string little_endian(Integer value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <typename Integer>
Integer integer_at(std::string_view text, std::size_t at) {
  Integer value = 0;
  if (at + sizeof value <= text.size()) std::memcpy(&value, text.data() + at, sizeof value);
  return value;
}

// Returns the size of the argument after an opcode, or npos if the pickle ends before.
std::size_t argument_size(char opcode, std::string_view rest) {
  constexpr std::string_view kOne =
                                 "\x80Kqh\x8cU\x8a"
                                 "C",
                             kTwo = "M", kFour = "JjrXTB\x8b", kEight = "\x95G\x8d\x8e";
  const auto has = [&](std::string_view set) { return set.find(opcode) != std::string_view::npos; };
  std::uint64_t size = has(kOne) ? 1 : has(kTwo) ? 2 : has(kFour) ? 4 : has(kEight) ? 8 : 0;
  if (std::string_view("\x8cU\x8a"
                       "C")
          .find(opcode) != std::string_view::npos)
    size += integer_at<std::uint8_t>(rest, 0);
  if (std::string_view("XTB\x8b").find(opcode) != std::string_view::npos)
    size += integer_at<std::uint32_t>(rest, 0);
  if (std::string_view("\x8d\x8e").find(opcode) != std::string_view::npos)
    size += integer_at<std::uint64_t>(rest, 0);
  if (opcode == 'c') {  // two lines: module and name
    const auto first = rest.find('\n');
    const auto second = first == std::string_view::npos ? first : rest.find('\n', first + 1);
    return second == std::string_view::npos ? second : second + 1;
  }
  return size > rest.size() ? std::string_view::npos : static_cast<std::size_t>(size);
}

class PickleMutator {
 public:
  PickleMutator(std::string_view pickle, std::uint64_t seed) : random_(seed) {
    while (!pickle.empty()) {
      const auto size = argument_size(pickle[0], pickle.substr(1));
      if (size == std::string_view::npos) break;
      opcodes_.emplace_back(pickle.substr(0, 1 + size));
      pickle.remove_prefix(1 + size);
    }
    rest_ = pickle;
  }

  std::string run() {
    for (auto edits = 1 + below(4); edits > 0; --edits) edit();
    std::string out;
    for (const auto& opcode : opcodes_) out += opcode;
    return out + rest_;
  }

 private:
  std::size_t below(std::size_t bound) {
    return bound == 0 ? 0 : static_cast<std::size_t>(random_() % bound);
  }

  void edit() {
    if (opcodes_.empty()) return;
    const auto at = opcodes_.begin() + static_cast<std::ptrdiff_t>(below(opcodes_.size()));
    switch (below(7)) {
      case 0:
        opcodes_.erase(at);
        return;
      case 1:
        opcodes_.insert(at, 1 + below(3), std::string(*at));
        return;
      case 2:
        std::swap(*at, opcodes_[below(opcodes_.size())]);
        return;
      case 3:
        opcodes_.insert(at, new_opcode());
        return;
      case 4:
        return repeat(static_cast<std::size_t>(at - opcodes_.begin()));
      case 5:
        (*at)[0] = new_opcode()[0];
        return;
      default:
        change_argument(*at);
    }
  }

  // Repeats a sequence of opcodes many times, which makes stacks, memos and containers large.
  void repeat(std::size_t at) {
    const auto end = std::min(opcodes_.size(), at + 1 + below(6));
    const std::vector<std::string> sequence(opcodes_.begin() + static_cast<std::ptrdiff_t>(at),
                                            opcodes_.begin() + static_cast<std::ptrdiff_t>(end));
    for (auto times = 1 + below(60); times > 0; --times)
      opcodes_.insert(opcodes_.begin() + static_cast<std::ptrdiff_t>(at), sequence.begin(),
                      sequence.end());
  }

  std::string new_opcode() {
    constexpr std::string_view kPlain =
        "(.012N]e)ta}usoRQbOl\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x93\x94\x92";
    const auto index = static_cast<std::uint8_t>(below(8));
    switch (below(7)) {
      case 0:
        return 'K' + little_endian(index);
      case 1:
        return 'h' + little_endian(index);
      case 2:
        return 'q' + little_endian(index);
      case 3:
        return 'J' + little_endian(static_cast<std::int32_t>(awkward_integer(1, random_())));
      case 4:
        return "\x8a\x08" + little_endian(awkward_integer(1, random_()));
      case 5:
        return 'j' + little_endian(static_cast<std::uint32_t>(awkward_integer(1, random_())));
      default:
        return std::string(1, kPlain[below(kPlain.size())]);
    }
  }

  void change_argument(std::string& opcode) {
    if (opcode.size() < 2) return;
    const auto at = 1 + below(opcode.size() - 1);
    opcode[at] = static_cast<char>(random_() >> 32);
  }

  std::mt19937_64 random_;
  std::vector<std::string> opcodes_;
  std::string rest_;
};

struct Member {
  std::string name;
  std::string data;
};

// Returns the members up to the first record that is not an uncompressed member.
std::vector<Member> read_members(std::string_view zip) {
  constexpr std::size_t kHeader = 30;
  std::vector<Member> members;
  while (zip.starts_with("PK\x03\x04") && zip.size() >= kHeader) {
    const auto name = integer_at<std::uint16_t>(zip, 26);
    const auto begin = kHeader + name + integer_at<std::uint16_t>(zip, 28);
    const auto size = integer_at<std::uint32_t>(zip, 18);
    if (begin > zip.size() || size > zip.size() - begin) break;
    members.push_back(
        {std::string(zip.substr(kHeader, name)), std::string(zip.substr(begin, size))});
    zip.remove_prefix(begin + size);
    const auto next = zip.find("PK");  // after a data descriptor
    zip.remove_prefix(next == std::string_view::npos ? zip.size() : next);
  }
  return members;
}

std::string write_zip(const std::vector<Member>& members) {
  std::string out, directory;
  for (const auto& [name, data] : members) {
    const auto size = static_cast<std::uint32_t>(data.size());
    const auto common = std::string("\0\0\0\0\0\0\0\0", 8) + little_endian(crc32(data)) +
                        little_endian(size) + little_endian(size) +
                        little_endian(static_cast<std::uint16_t>(name.size())) +
                        std::string(2, '\0');
    directory += std::string("PK\x01\x02\x14\0\x14\0", 8) + common + std::string(10, '\0') +
                 little_endian(static_cast<std::uint32_t>(out.size())) + name;
    out += std::string("PK\x03\x04\x14\0", 6) + common + name + data;
  }
  const auto count = little_endian(static_cast<std::uint16_t>(members.size()));
  return out + directory + std::string("PK\x05\x06\0\0\0\0", 8) + count + count +
         little_endian(static_cast<std::uint32_t>(directory.size())) +
         little_endian(static_cast<std::uint32_t>(out.size())) + std::string(2, '\0');
}

}  // namespace

std::string mutate_pickle(std::string_view file, std::uint64_t seed) {
  if (!file.starts_with("PK")) return PickleMutator(file, seed).run();
  auto members = read_members(file);
  const auto pickle = std::ranges::find_if(
      members, [](const Member& member) { return member.name.ends_with("/data.pkl"); });
  if (pickle == members.end()) return std::string(file);
  pickle->data = PickleMutator(pickle->data, seed).run();
  return write_zip(members);
}

}  // namespace qkscope
