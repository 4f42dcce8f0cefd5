#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "base/core/convert.h"
#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/byte_reader.h"
#include "input/checkpoint/safetensors.h"

namespace qkscope {
namespace {

constexpr std::string_view kDictionary = "collections.OrderedDict";
constexpr std::string_view kTensor = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kParameter = "torch._utils._rebuild_parameter";
constexpr int kMaxDepth = 64;  // nesting depth of tuples
// Limits the number of values in a pickle to keep memory a small multiple of the file size. A
// checkpoint pushes and memoises about forty values per tensor, in at least 100 bytes.
constexpr std::size_t kLeastValueLimit = std::size_t{1} << 17;
constexpr std::size_t kBytesPerValue = 2;
constexpr std::size_t kMaxRank = 16;         // dimensions of a tensor
constexpr std::size_t kMaxStorageName = 64;  // bytes; PyTorch counts: "0", "1", ...

enum class PickleKind { mark, none, number, text, global, tuple, dict, list, storage, tensor };

constexpr std::array kKindNames = {"a mark",  "None",   "a number", "text",      "a global",
                                   "a tuple", "a dict", "a list",   "a storage", "a tensor"};

using SharedTensor = std::shared_ptr<const PickledTensor>;

// An unpickled dictionary keeps its tensors and, for error messages, a description of the first
// entry that is not a tensor; an unpickled list keeps nothing, so reference cycles cannot arise.
struct PickleDictionary {
  std::map<std::string_view, SharedTensor> tensors;  // names point into the pickle
  std::string other;                                 // e.g. "'epoch', a number"
};

// An unpickled value. Copies share its content, because a pickle may recall it any number of times.
struct PickleValue {
  PickleKind kind = PickleKind::none;
  int depth = 0;  // nesting depth of a tuple
  std::int64_t number = 0;
  std::string_view text = {};  // string value in the pickle, or name of a known global
  std::shared_ptr<const std::vector<PickleValue>> items = {};  // elements of a tuple
  std::shared_ptr<PickleDictionary> dictionary = {};
  SharedTensor tensor = {};  // a storage is a tensor without shape
};

class Unpickler {
 public:
  Unpickler(std::span<const std::byte> pickle, const std::string& where)
      : where_(where),
        most_values_(kLeastValueLimit + pickle.size() / kBytesPerValue),
        reader_(pickle, [this](const TruncatedRead&) { fail("its pickle ends in the middle"); }) {}

  std::map<std::string, PickledTensor> read_tensors() {
    while (true) {
      const auto opcode = static_cast<unsigned char>(read_integer(1));
      if (opcode == '.') break;
      execute_opcode(opcode);
    }
    const auto result = pop();
    if (result.kind != PickleKind::dict)
      fail("it holds {}, expected a dictionary of tensors", kind_name(result));
    if (!result.dictionary->other.empty())
      fail("it holds {}, expected tensors and nothing else", result.dictionary->other);
    std::map<std::string, PickledTensor> tensors;
    for (const auto& [name, tensor] : result.dictionary->tensors) tensors.emplace(name, *tensor);
    return tensors;
  }

 private:
  struct Opcode {
    unsigned char code;  // as in pickletools.py of CPython
    const char* name;
    void (*execute)(Unpickler& u);
  };

  void execute_opcode(unsigned char code) {
    static constexpr Opcode kOpcodes[] = {
        {0x80, "PROTO", [](Unpickler& u) { u.check_protocol(u.read_integer(1)); }},
        {0x95, "FRAME", [](Unpickler& u) { u.reader_.read_bytes(8); }},
        {'(', "MARK", [](Unpickler& u) { u.push({.kind = PickleKind::mark}); }},
        {'N', "NONE", [](Unpickler& u) { u.push({}); }},
        {0x88, "NEWTRUE", [](Unpickler& u) { u.push_number(1); }},
        {0x89, "NEWFALSE", [](Unpickler& u) { u.push_number(0); }},
        {'K', "BININT1", [](Unpickler& u) { u.push_number(u.read_integer(1)); }},
        {'M', "BININT2", [](Unpickler& u) { u.push_number(u.read_integer(2)); }},
        {'J', "BININT", [](Unpickler& u) { u.push_number(u.reader_.read<std::int32_t>()); }},
        {0x8a, "LONG1", [](Unpickler& u) { u.push_long(u.reader_.read_integer(1)); }},
        {'X', "BINUNICODE", [](Unpickler& u) { u.push_text(u.reader_.read_integer(4)); }},
        {0x8c, "SHORT_BINUNICODE", [](Unpickler& u) { u.push_text(u.reader_.read_integer(1)); }},
        {'c', "GLOBAL", [](Unpickler& u) { u.push_global(); }},
        {0x93, "STACK_GLOBAL", [](Unpickler& u) { u.push_stack_global(); }},
        {'}', "EMPTY_DICT", [](Unpickler& u) { u.push_dictionary(); }},
        {']', "EMPTY_LIST", [](Unpickler& u) { u.push({.kind = PickleKind::list}); }},
        {')', "EMPTY_TUPLE", [](Unpickler& u) { u.push_tuple({}); }},
        {'t', "TUPLE", [](Unpickler& u) { u.push_tuple(u.pop_to_mark()); }},
        {0x85, "TUPLE1", [](Unpickler& u) { u.push_tuple(u.pop_values(1)); }},
        {0x86, "TUPLE2", [](Unpickler& u) { u.push_tuple(u.pop_values(2)); }},
        {0x87, "TUPLE3", [](Unpickler& u) { u.push_tuple(u.pop_values(3)); }},
        {'q', "BINPUT", [](Unpickler& u) { u.memoize(u.read_integer(1)); }},
        {'r', "LONG_BINPUT", [](Unpickler& u) { u.memoize(u.read_integer(4)); }},
        {0x94, "MEMOIZE", [](Unpickler& u) { u.memoize(std::ssize(u.memo_)); }},
        {'h', "BINGET", [](Unpickler& u) { u.push_memoized(u.read_integer(1)); }},
        {'j', "LONG_BINGET", [](Unpickler& u) { u.push_memoized(u.read_integer(4)); }},
        {'Q', "BINPERSID", [](Unpickler& u) { u.push_storage(u.pop()); }},
        {'R', "REDUCE", [](Unpickler& u) { u.call_reduce_function(); }},
        // Pickle opcodes that set attributes of a dict or append to a list: tensors need neither.
        {'b', "BUILD", [](Unpickler& u) { u.drop_items(u.pop_values(1), PickleKind::dict); }},
        {'a', "APPEND", [](Unpickler& u) { u.drop_items(u.pop_values(1), PickleKind::list); }},
        {'e', "APPENDS", [](Unpickler& u) { u.drop_items(u.pop_to_mark(), PickleKind::list); }},
        {'s', "SETITEM", [](Unpickler& u) { u.set_items(u.pop_values(2)); }},
        {'u', "SETITEMS", [](Unpickler& u) { u.set_items(u.pop_to_mark()); }},
    };
    for (const auto& opcode : kOpcodes)
      if (opcode.code == code) return opcode.execute(*this);
    fail("opcode 0x{:02x} is none that tensors need", code);
  }

  void check_protocol(std::int64_t version) const {
    if (version > 5) fail("its pickle has protocol {}, expected up to 5", version);
  }
  void drop_items(const std::vector<PickleValue>&, PickleKind target) {
    require_kind(top(), target);
  }

  std::int64_t read_integer(std::uint64_t bytes) {
    return static_cast<std::int64_t>(reader_.read_integer(bytes));
  }
  std::string read_line() {
    std::string text;
    for (char c = reader_.read<char>(); c != '\n'; c = reader_.read<char>()) text += c;
    return text;
  }
  void check_value_limit() {
    if (++values_ > most_values_) fail("its pickle makes more than {} values", most_values_);
  }

  // ---- Stack and memo

  void push(PickleValue value) {
    check_value_limit();
    stack_.push_back(std::move(value));
  }
  void push_number(std::int64_t value) { push({.kind = PickleKind::number, .number = value}); }
  void push_text(std::uint64_t length) {
    push({.kind = PickleKind::text, .text = reader_.read_text(length)});
  }
  void push_long(std::uint64_t bytes) {
    if (bytes > 8) fail("a number of {} bytes is none that tensors need", bytes);
    const auto value = reader_.read_integer(bytes);
    const auto unused = static_cast<unsigned>(64 - 8 * bytes);
    push_number(bytes == 0 ? 0 : static_cast<std::int64_t>(value << unused) >> unused);
  }
  void push_global() {
    const auto module = read_line();
    push_allowed_global(module + "." + read_line());
  }
  void push_stack_global() {
    const auto parts = pop_values(2);
    for (const auto& part : parts) require_kind(part, PickleKind::text);
    push_allowed_global(fmt::format("{}.{}", parts[0].text, parts[1].text));
  }
  void push_allowed_global(std::string_view name) {
    for (const auto known : {kDictionary, kTensor, kParameter})
      if (name == known) return push({.kind = PickleKind::global, .text = known});
    const auto dtype = dtype_from_torch_storage(name);
    if (!dtype) fail("global {} is none that tensors need, and could be code", quote_text(name));
    push({.kind = PickleKind::global, .text = torch_storage_name(*dtype)});
  }
  void push_dictionary() {
    push({.kind = PickleKind::dict, .dictionary = std::make_shared<PickleDictionary>()});
  }
  void push_tuple(std::vector<PickleValue> items) {
    int depth = 0;
    for (const auto& item : items) depth = std::max(depth, item.depth + 1);
    if (depth > kMaxDepth) fail("tuples lie more than {} deep in each other", kMaxDepth);
    push({.kind = PickleKind::tuple,
          .depth = depth,
          .items = std::make_shared<const std::vector<PickleValue>>(std::move(items))});
  }

  PickleValue& top() {
    if (stack_.empty()) fail("its pickle takes more from the stack than is there");
    return stack_.back();
  }
  PickleValue pop() {
    auto value = std::move(top());
    stack_.pop_back();
    return value;
  }
  std::vector<PickleValue> pop_values(int count) {
    std::vector<PickleValue> values(static_cast<std::size_t>(count));
    for (std::size_t i = values.size(); i-- > 0;) values[i] = pop();
    return values;
  }
  std::vector<PickleValue> pop_to_mark() {
    std::size_t begin = stack_.size();
    while (begin > 0 && stack_[begin - 1].kind != PickleKind::mark) --begin;
    if (begin == 0) fail("its pickle takes more from the stack than is there");
    std::vector<PickleValue> values(
        std::make_move_iterator(stack_.begin() + static_cast<std::ptrdiff_t>(begin)),
        std::make_move_iterator(stack_.end()));
    stack_.resize(begin - 1);
    return values;
  }

  void memoize(std::int64_t key) {
    check_value_limit();
    memo_[key] = top();
  }
  void push_memoized(std::int64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail("its pickle recalls {}, which it never kept", key);
    push(found->second);
  }

  // ---- Tensor reconstruction

  // Parses the persistent id of a storage: ("storage", torch.FloatStorage, "0", "cpu", elements).
  void push_storage(const PickleValue& id) {
    const auto& parts = tuple_items(id, 5);
    if (parts[0].text != "storage") fail("a persistent object is none that tensors need");
    const auto dtype = dtype_from_torch_storage(parts[1].text);
    if (!dtype) fail("a storage of {} is not supported", quote_text(parts[1].text));
    require_kind(parts[2], PickleKind::text);
    if (parts[2].text.size() > kMaxStorageName)
      fail("a storage has a name of {} bytes", parts[2].text.size());
    PickledTensor tensor;
    tensor.storage = parts[2].text;
    tensor.dtype = *dtype;
    push_tensor_value(PickleKind::storage, std::move(tensor));
  }

  void push_tensor_value(PickleKind kind, PickledTensor tensor) {
    push({.kind = kind, .tensor = std::make_shared<const PickledTensor>(std::move(tensor))});
  }

  void call_reduce_function() {
    const auto arguments = pop();
    const auto function = pop();
    require_kind(function, PickleKind::global);
    if (function.text == kDictionary) {
      tuple_items(arguments, 0);
      push_dictionary();
    } else if (function.text == kTensor) {
      push_rebuilt_tensor(arguments);
    } else if (function.text == kParameter) {  // arguments: (tensor, requires_grad, hooks)
      auto tensor = tuple_items(arguments, 3)[0];
      require_kind(tensor, PickleKind::tensor);
      push(std::move(tensor));
    } else {
      fail("{} is called, which tensors do not need", quote_text(function.text));
    }
  }

  // Parses the arguments of _rebuild_tensor_v2: (storage, offset, shape, strides, requires_grad,
  // hooks) and optionally metadata.
  void push_rebuilt_tensor(const PickleValue& arguments) {
    require_kind(arguments, PickleKind::tuple);
    const auto& parts = *arguments.items;
    if (parts.size() != 6 && parts.size() != 7)
      fail("a tensor is made of {} parts, expected 6", parts.size());
    require_kind(parts[0], PickleKind::storage);
    require_kind(parts[1], PickleKind::number);
    auto tensor = *parts[0].tensor;
    tensor.offset = parts[1].number;
    tensor.shape = tuple_to_sizes(parts[2]);
    tensor.strides = tuple_to_sizes(parts[3]);
    if (tensor.offset < 0 || tensor.shape.size() != tensor.strides.size())
      fail("a tensor has an offset, a shape and strides that do not fit together");
    push_tensor_value(PickleKind::tensor, std::move(tensor));
  }

  std::vector<std::int64_t> tuple_to_sizes(const PickleValue& tuple) const {
    require_kind(tuple, PickleKind::tuple);
    if (tuple.items->size() > kMaxRank)
      fail("a tensor has {} dimensions, expected at most {}", tuple.items->size(), kMaxRank);
    std::vector<std::int64_t> sizes;
    for (const auto& item : *tuple.items) {
      require_kind(item, PickleKind::number);
      if (item.number < 0) fail("a tensor has a size or stride of {}", item.number);
      sizes.push_back(item.number);
    }
    return sizes;
  }

  void set_items(const std::vector<PickleValue>& pairs) {
    auto& target = top();
    require_kind(target, PickleKind::dict);
    if (pairs.size() % 2 != 0) fail("a dictionary gets a name without a value");
    for (std::size_t i = 0; i < pairs.size(); i += 2) {
      const auto& name = pairs[i];
      const auto& value = pairs[i + 1];
      if (name.kind == PickleKind::text && value.kind == PickleKind::tensor)
        target.dictionary->tensors[name.text] = value.tensor;
      else if (target.dictionary->other.empty())
        target.dictionary->other = fmt::format(
            "{}, {}",
            name.kind == PickleKind::text ? quote_text(name.text) : "a key that is no text",
            kind_name(value));
    }
  }

  const std::vector<PickleValue>& tuple_items(const PickleValue& tuple, std::size_t count) const {
    require_kind(tuple, PickleKind::tuple);
    if (tuple.items->size() != count)
      fail("found {} parts, expected {}", tuple.items->size(), count);
    return *tuple.items;
  }

  static std::string kind_name(const PickleValue& value) {
    return kKindNames[static_cast<std::size_t>(value.kind)];
  }
  void require_kind(const PickleValue& value, PickleKind kind) const {
    if (value.kind != kind)
      fail("found {}, expected {}", kind_name(value), kKindNames[static_cast<std::size_t>(kind)]);
  }

  template <typename... Parts>
  [[noreturn]] void fail(fmt::format_string<Parts...> text, Parts&&... parts) const {
    reject(
        "{}: not a checkpoint of tensors: {}. Checkpoints with anything else in them must be "
        "converted to safetensors where they are trusted",
        where_, fmt::format(text, std::forward<Parts>(parts)...));
  }

  const std::string& where_;
  std::size_t most_values_;
  std::size_t values_ = 0;  // number pushed and memoised so far
  ByteReader reader_;
  std::deque<PickleValue> stack_;  // a growing vector takes up to three times the memory
  std::map<std::int64_t, PickleValue> memo_;
};

}  // namespace

std::map<std::string, PickledTensor> read_tensor_pickle(std::span<const std::byte> pickle,
                                                        const std::string& where) {
  return Unpickler(pickle, where).read_tensors();
}

}  // namespace qkscope
