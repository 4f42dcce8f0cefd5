// Exports for triattention (a PyTorch file) and triattention-ggml (TRIA): means of the queries
// before RoPE, one complex number per rotary pair. The PyTorch file is a ZIP archive with a pickle,
// written without PyTorch and readable by torch.load(weights_only=True).
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>

#include <arrow/util/crc32.h>
#include <fmt/format.h>

#include "base/core/error.h"
#include "base/io/output_file.h"
#include "capture/exports/export_input.h"
#include "capture/format/metadata.h"

namespace qkscope {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Pickle opcodes, named as in Python's pickletools.
namespace op {
constexpr char kProto = '\x80';
constexpr char kMark = '(';
constexpr char kStop = '.';
constexpr char kEmptyDict = '}';
constexpr char kSetItems = 'u';
constexpr char kEmptyList = ']';
constexpr char kAppends = 'e';
constexpr char kBinUnicode = 'X';
constexpr char kBinInt = 'J';
constexpr char kBinFloat = 'G';
constexpr char kTrue = '\x88';
constexpr char kFalse = '\x89';
constexpr char kGlobal = 'c';
constexpr char kTuple = 't';
constexpr char kEmptyTuple = ')';
constexpr char kReduce = 'R';
constexpr char kPersistentId = 'Q';
}  // namespace op

constexpr std::size_t kAlignment = 64;
constexpr std::uint16_t kVersion = 20;      // ZIP version needed to extract: 2.0
constexpr std::uint16_t kDate = 0x21;       // always 1980-01-01: equal content gives equal bytes
constexpr std::uint16_t kPadding = 0x4246;  // id of the extra field, "FB" as in PyTorch

// Appends unsigned integers in little-endian order, each in the size of its type.
template <typename... Values>
void put_little_endian(std::string& out, Values... values) {
  const auto put = [&](auto value) {
    for (std::size_t i = 0; i < sizeof value; ++i)
      out += static_cast<char>(static_cast<unsigned char>(value >> 8 * i));
  };
  (put(values), ...);
}

std::uint32_t to_uint32(std::size_t size) {
  if (size > std::numeric_limits<std::uint32_t>::max())
    reject("export: the file would be larger than 4 GiB, which its format cannot hold");
  return static_cast<std::uint32_t>(size);
}

// A ZIP archive with uncompressed members, in the layout that PyTorch writes.
class ZipWriter {
 public:
  // Aligns the content to 64 bytes, so that a reader may map it into memory.
  void add(const std::string& name, std::string_view content) {
    const Member member{name, arrow::internal::crc32(0, content.data(), content.size()),
                        to_uint32(content.size()), to_uint32(bytes_.size())};
    constexpr std::size_t kHeader = 30;
    const auto unaligned = (bytes_.size() + kHeader + name.size() + 4) % kAlignment;
    const auto padding = static_cast<std::uint16_t>(unaligned == 0 ? 0 : kAlignment - unaligned);
    put_little_endian(bytes_, std::uint32_t{0x04034B50});
    put_common_fields(member);
    put_little_endian(bytes_, static_cast<std::uint16_t>(padding + 4));
    bytes_ += name;
    put_little_endian(bytes_, kPadding, padding);
    bytes_.append(padding, 'Z');
    bytes_ += content;
    members_.push_back(member);
  }

  // Returns the archive. Throws a bad-input error if it exceeds 65,535 members or 4 GiB.
  std::string finish() {
    if (members_.size() > std::numeric_limits<std::uint16_t>::max())
      reject("export: the file would have {} members; its format holds at most 65,535",
             members_.size());
    const auto directory = to_uint32(bytes_.size());
    for (const auto& member : members_) {
      put_little_endian(bytes_, std::uint32_t{0x02014B50}, kVersion);  // ZIP version of the writer
      put_common_fields(member);
      // Fields that are 0: extra length, comment length, disk, internal and external attributes.
      put_little_endian(bytes_, kZero16, kZero16, kZero16, kZero16, kZero32, member.offset);
      bytes_ += member.name;
    }
    const auto size = to_uint32(bytes_.size()) - directory;
    const auto count = static_cast<std::uint16_t>(members_.size());
    // End record of the archive. Disk numbers are 0, and there is no comment.
    put_little_endian(bytes_, std::uint32_t{0x06054B50}, kZero32, count, count, size, directory,
                      kZero16);
    return std::move(bytes_);
  }

 private:
  struct Member {
    std::string name;
    std::uint32_t crc32 = 0;
    std::uint32_t size = 0;
    std::uint32_t offset = 0;
  };
  static constexpr std::uint16_t kZero16 = 0;
  static constexpr std::uint32_t kZero32 = 0;

  // Writes the fields that ZIP local and central headers share. Flags, method and time are 0.
  void put_common_fields(const Member& member) {
    put_little_endian(bytes_, kVersion, kZero16, kZero16, kZero16, kDate, member.crc32, member.size,
                      member.size, static_cast<std::uint16_t>(member.name.size()));
  }

  std::string bytes_;
  std::vector<Member> members_;
};

// Writes a PyTorch file: a pickle (protocol 2), and archive members for its tensors.
class TorchWriter {
 public:
  // Returns the bytes of a PyTorch file with archive folder `name`. `value` is JSON with integers
  // of at most 32 bits; a binary value holds the float32 elements of a 1-D tensor.
  std::string serialize(const std::string& name, const OrderedJson& value) {
    pickle_ = {op::kProto, '\x02'};
    write_pickled_value(value);
    pickle_ += op::kStop;
    ZipWriter zip;
    zip.add(name + "/data.pkl", pickle_);
    zip.add(name + "/byteorder", "little");
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      zip.add(fmt::format("{}/data/{}", name, i), tensors_[i]);
    zip.add(name + "/version", "3\n");
    return zip.finish();
  }

 private:
  void write_pickled_value(const OrderedJson& value) {
    if (value.is_object()) {
      pickle_ += {op::kEmptyDict, op::kMark};
      for (const auto& [key, item] : value.items()) {
        put_text(key);
        write_pickled_value(item);
      }
      pickle_ += op::kSetItems;
    } else if (value.is_array()) {
      pickle_ += {op::kEmptyList, op::kMark};
      for (const auto& item : value) write_pickled_value(item);
      pickle_ += op::kAppends;
    } else if (value.is_string()) {
      put_text(value.get<std::string>());
    } else if (value.is_boolean()) {
      pickle_ += value.get<bool>() ? op::kTrue : op::kFalse;
    } else if (value.is_number_float()) {
      pickle_ += op::kBinFloat;
      const auto bits = std::bit_cast<std::uint64_t>(value.get<double>());
      for (int i = 7; i >= 0; --i)
        pickle_ += static_cast<char>(static_cast<unsigned char>(bits >> 8 * i));
    } else if (value.is_number_integer()) {
      put_integer(value.get<std::int64_t>());
    } else {
      put_tensor(value.get_binary());
    }
  }

  void put_text(std::string_view text) {
    pickle_ += op::kBinUnicode;
    put_little_endian(pickle_, static_cast<std::uint32_t>(text.size()));
    pickle_ += text;
  }

  void put_integer(std::int64_t value) {
    QKSCOPE_ASSERT(std::in_range<std::int32_t>(value));
    pickle_ += op::kBinInt;
    put_little_endian(pickle_, static_cast<std::uint32_t>(value));
  }

  void put_pickle_global(std::string_view module, std::string_view name) {
    pickle_ += fmt::format("{}{}\n{}\n", op::kGlobal, module, name);
  }

  // Pickles _rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks). The storage
  // is ("storage", torch.FloatStorage, "0", "cpu", size), with its values in the member data/0.
  void put_tensor(const std::vector<std::uint8_t>& bytes) {
    static_assert(std::endian::native == std::endian::little);
    const auto size = std::ssize(bytes) / static_cast<std::int64_t>(sizeof(float));
    put_pickle_global("torch._utils", "_rebuild_tensor_v2");
    pickle_ += {op::kMark, op::kMark};
    put_text("storage");
    put_pickle_global("torch", "FloatStorage");
    put_text(std::to_string(tensors_.size()));
    put_text("cpu");
    put_integer(size);
    pickle_ += {op::kTuple, op::kPersistentId};
    put_integer(0);
    for (const auto number : {size, std::int64_t{1}}) {
      pickle_ += op::kMark;
      put_integer(number);
      pickle_ += op::kTuple;
    }
    pickle_ += op::kFalse;
    put_pickle_global("collections", "OrderedDict");
    pickle_ += {op::kEmptyTuple, op::kReduce, op::kTuple, op::kReduce};
    tensors_.emplace_back(bytes.begin(), bytes.end());
  }

  std::string pickle_;
  std::vector<std::string> tensors_;  // float32 values of each tensor, as bytes
};

// Mean query of one head before RoPE: a complex number per rotary pair. Fields: shape (pairs).
struct RotaryPairMeans {
  std::vector<float> real;
  std::vector<float> imaginary;
  std::vector<float> length;         // mean of |x|
  std::vector<float> concentration;  // |mean| / mean of |x|
};

RotaryPairMeans rotary_pair_means(const HeadMoments& moments, std::int64_t head) {
  const double* mean = moments.mean.data() + head * moments.dim;
  const double* length = moments.pair_abs.data() + head * moments.pairs;
  RotaryPairMeans means;
  for (std::int64_t i = 0; i < moments.pairs; ++i) {
    const double x = mean[i];
    const double y = mean[i + moments.pairs];
    means.real.push_back(static_cast<float>(x));
    means.imaginary.push_back(static_cast<float>(y));
    means.length.push_back(static_cast<float>(length[i]));
    means.concentration.push_back(
        static_cast<float>(length[i] > 0 ? std::hypot(x, y) / length[i] : 0));
  }
  return means;
}

std::vector<std::int64_t> layers_with_rope(const ExportInput& input) {
  std::vector<std::int64_t> layers;
  for (const auto layer : input.statistics().layers)
    if (input.has_rope(layer)) layers.push_back(layer);
  return layers;
}

// Query statistics by head, such as {"layer03_head12": {"q_mean_real": tensor, ...}}.
OrderedJson query_statistics_by_head(const ExportInput& input) {
  const auto tensor = [](std::span<const float> values) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
    return OrderedJson::binary({bytes, bytes + values.size_bytes()});
  };
  auto heads = OrderedJson::object();
  for (const auto layer : layers_with_rope(input)) {
    const auto moments = input.moments(VectorKind::query, VectorStage::pre, layer, "all");
    for (std::int64_t head = 0; head < input.head_count(); ++head) {
      const auto means = rotary_pair_means(moments, head);
      heads[fmt::format("layer{:02}_head{:02}", layer, head)] = {
          {"q_mean_real", tensor(means.real)},
          {"q_mean_imag", tensor(means.imaginary)},
          {"q_abs_mean", tensor(means.length)}};
    }
  }
  return heads;
}

void append_floats(std::string& out, std::span<const float> values) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

}  // namespace

std::string export_triattention_statistics(const ExportInput& input) {
  input.check_no_interleaved_rope();
  input.check_no_partial_rotary();
  const auto rope = input.common_rope();
  auto sampled = OrderedJson::array();
  for (const auto layer : layers_with_rope(input))
    for (std::int64_t head = 0; head < input.head_count(); ++head)
      sampled.push_back(OrderedJson::array({layer, head}));
  const OrderedJson description = {{"sampled_heads", sampled},
                                   {"head_dim", input.head_dim()},
                                   {"rope_style", "half"},
                                   {"num_traces", std::ssize(input.statistics().lengths)},
                                   {"dtype", input.metadata_text(metadata::kDtype)},
                                   {"rope_type", rope.type},
                                   {"rope_theta", rope.theta},
                                   {"inv_freq", rope.inv_freq},
                                   {"num_attention_heads", input.head_count()},
                                   {"num_kv_heads", input.key_head_count()},
                                   {"num_layers", input.layer_count()},
                                   {"model_name", input.model_name()},
                                   {"use_chat_template", false},
                                   {"system_prompt", ""},
                                   {"attn_implementation", "qkscope"}};
  const OrderedJson value = {{"metadata", description}, {"stats", query_statistics_by_head(input)}};
  const auto& path = input.options().out;
  make_folder_for_output_file(input.options(), path);
  write_file(path, TorchWriter().serialize(std::filesystem::path(path).stem().string(), value));
  return path;
}

std::string export_triattention_binary_statistics(const ExportInput& input) {
  input.check_no_interleaved_rope();
  const RopeParameters rope = input.common_rope();
  if (rope.type != "default")
    input.reject_export(
        fmt::format("its RoPE is scaled ({}), and readers of this file compute the "
                    "frequencies from theta alone",
                    rope.type));
  constexpr std::size_t kHeader = 64;
  const auto pairs = rope.dim / 2;
  std::string bytes;
  for (const auto number : {std::int64_t{0x54524941}, std::int64_t{2}, input.layer_count(),
                            input.head_count(), input.key_head_count(), rope.dim, pairs})
    put_little_endian(bytes, static_cast<std::uint32_t>(number));
  append_floats(bytes, std::array{static_cast<float>(rope.theta),
                                  static_cast<float>(rope.attention_scaling)});
  bytes.resize(kHeader, '\0');
  append_floats(bytes, std::vector<float>(static_cast<std::size_t>(input.layer_count()), 1.0f));
  const std::vector<float> zeros(static_cast<std::size_t>(4 * pairs * input.head_count()));
  for (std::int64_t layer = 0; layer < input.layer_count(); ++layer) {
    if (!input.has_rope(layer)) {
      append_floats(bytes, zeros);
      continue;
    }
    const auto moments = input.moments(VectorKind::query, VectorStage::pre, layer, "all");
    for (std::int64_t head = 0; head < input.head_count(); ++head) {
      const auto means = rotary_pair_means(moments, head);
      for (const auto* values :
           {&means.real, &means.imaginary, &means.length, &means.concentration})
        append_floats(bytes, *values);
    }
  }
  make_folder_for_output_file(input.options(), input.options().out);
  write_file(input.options().out, bytes);
  return input.options().out;
}

}  // namespace qkscope
