// Exports for triattention (a PyTorch file) and triattention-ggml (TRIA): means of the queries
// before RoPE, one complex number per rotary pair.
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/io/output_file.h"
#include "capture/exports/export_input.h"
#include "capture/exports/torch_file.h"
#include "capture/format/metadata.h"

namespace qkscope {
namespace {

// Means of one head, shape (pairs) each.
struct PairMeans {
  std::vector<float> real;
  std::vector<float> imaginary;
  std::vector<float> length;         // mean of |x|
  std::vector<float> concentration;  // |mean| / mean of |x|
};

PairMeans pair_means(const HeadMoments& moments, std::int64_t head) {
  const double* mean = moments.mean.data() + head * moments.dim;
  const double* length = moments.pair_abs.data() + head * moments.pairs;
  PairMeans means;
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

std::vector<std::int64_t> rotated_layers(const ExportInput& input) {
  std::vector<std::int64_t> layers;
  for (const auto layer : input.statistics().layers)
    if (input.rotated(layer)) layers.push_back(layer);
  return layers;
}

void write_metadata(TorchFile& file, const ExportInput& input, const ExportRope& rope) {
  const auto entry = [&](const char* key, auto put) {
    file.text(key);
    put();
  };
  const auto text = [&](const char* key, const std::string& value) {
    entry(key, [&] { file.text(value); });
  };
  const auto integer = [&](const char* key, std::int64_t value) {
    entry(key, [&] { file.integer(value); });
  };
  file.text("metadata");
  file.begin_dict();
  entry("sampled_heads", [&] {
    file.begin_list();
    for (const auto layer : rotated_layers(input))
      for (std::int64_t head = 0; head < input.heads(); ++head) {
        file.begin_list();
        file.integer(layer);
        file.integer(head);
        file.end_list();
      }
    file.end_list();
  });
  integer("head_dim", input.dim());
  text("rope_style", "half");
  integer("num_traces", std::ssize(input.statistics().lengths));
  text("dtype", input.text(metadata::kDtype));
  text("rope_type", rope.type);
  entry("rope_theta", [&] { file.real(rope.theta); });
  entry("inv_freq", [&] {
    file.begin_list();
    for (const double frequency : rope.inv_freq) file.real(frequency);
    file.end_list();
  });
  integer("num_attention_heads", input.heads());
  integer("num_kv_heads", input.key_heads());
  integer("num_layers", input.layers());
  text("model_name", input.model_name());
  entry("use_chat_template", [&] { file.boolean(false); });
  text("system_prompt", "");
  text("attn_implementation", "qkscope");
  file.end_dict();
}

void write_heads(TorchFile& file, const ExportInput& input) {
  file.text("stats");
  file.begin_dict();
  for (const auto layer : rotated_layers(input)) {
    const auto moments = input.moments(VectorKind::query, VectorStage::pre, layer, "all");
    for (std::int64_t head = 0; head < input.heads(); ++head) {
      const auto means = pair_means(moments, head);
      file.text(fmt::format("layer{:02}_head{:02}", layer, head));
      file.begin_dict();
      file.text("q_mean_real");
      file.tensor(means.real);
      file.text("q_mean_imag");
      file.tensor(means.imaginary);
      file.text("q_abs_mean");
      file.tensor(means.length);
      file.end_dict();
    }
  }
  file.end_dict();
}

void append_words(std::string& out, std::initializer_list<std::uint32_t> words) {
  for (const auto word : words) out.append(reinterpret_cast<const char*>(&word), sizeof word);
}
void append_floats(std::string& out, std::span<const float> values) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

}  // namespace

std::string export_triattention(const ExportInput& input) {
  input.refuse_interleaved();
  input.refuse_partial_rotary();
  const ExportRope rope = input.one_rope();
  const auto& path = input.options().out;
  TorchFile file(std::filesystem::path(path).stem().string());
  file.begin_dict();
  write_metadata(file, input, rope);
  write_heads(file, input);
  file.end_dict();
  prepare_file(input.options(), path);
  write_file(path, file.finish());
  return path;
}

std::string export_tria(const ExportInput& input) {
  input.refuse_interleaved();
  const ExportRope rope = input.one_rope();
  if (rope.type != "default")
    input.refuse(
        fmt::format("its RoPE is scaled ({}), and readers of this file compute the "
                    "frequencies from theta alone",
                    rope.type));
  constexpr std::size_t kHeader = 64;
  const auto pairs = rope.dim / 2;
  std::string bytes;
  append_words(bytes, {0x54524941, 2, static_cast<std::uint32_t>(input.layers()),
                       static_cast<std::uint32_t>(input.heads()),
                       static_cast<std::uint32_t>(input.key_heads()),
                       static_cast<std::uint32_t>(rope.dim), static_cast<std::uint32_t>(pairs)});
  append_floats(bytes, std::array{static_cast<float>(rope.theta),
                                  static_cast<float>(rope.attention_scaling)});
  bytes.resize(kHeader, '\0');
  append_floats(bytes, std::vector<float>(static_cast<std::size_t>(input.layers()), 1.0f));
  const std::vector<float> zeros(static_cast<std::size_t>(4 * pairs * input.heads()));
  for (std::int64_t layer = 0; layer < input.layers(); ++layer) {
    if (!input.rotated(layer)) {
      append_floats(bytes, zeros);
      continue;
    }
    const auto moments = input.moments(VectorKind::query, VectorStage::pre, layer, "all");
    for (std::int64_t head = 0; head < input.heads(); ++head) {
      const auto means = pair_means(moments, head);
      for (const auto* values :
           {&means.real, &means.imaginary, &means.length, &means.concentration})
        append_floats(bytes, *values);
    }
  }
  prepare_file(input.options(), input.options().out);
  write_file(input.options().out, bytes);
  return input.options().out;
}

}  // namespace qkscope
