#include "qkscope/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <memory>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/folder.h"
#include "input/tokenizer/encoder.h"
#include "input/tokenizer/tokenizer_file.h"

namespace qkscope {
namespace {

constexpr std::size_t kPieceBytes = 64 * 1024;  // bytes encoded at once; fits into the CPU cache
constexpr std::size_t kParallelBytes = 4 * kPieceBytes;   // longer texts are encoded in parallel
constexpr std::size_t kUnlimited = std::size_t{1} << 60;  // ids; kUnlimited * kBytesPerId fits
constexpr std::size_t kBytesPerId = 5;                    // estimated bytes of text per id

Encoder::TokenizationPipeline make_tokenization_pipeline(TokenizerFile& file) {
  Encoder::TokenizationPipeline parts;
  parts.normalizer = make_normalizer(file.normalizer, file.path);
  parts.pre_tokenizer = make_pre_tokenizer(file.pre_tokenizer, file.path);
  parts.model = BpeModel(std::move(file.model), parts.pre_tokenizer.is_byte_level, file.path);
  const auto add = [&](const AddedToken& token) {
    parts.added_tokens.add(token, parts.model.vocabulary(), parts.normalizer);
  };
  for (const AddedToken& token : file.added_tokens) add(token);
  for (const AddedToken& token : file.config_tokens)
    if (parts.added_tokens.find(token.content) < 0) add(token);
  return parts;
}

// Returns the id of a token, or -1 if it is neither an added token nor in the vocabulary.
std::int32_t find_token_id(const Encoder& encoder, const std::string& token) {
  if (token.empty()) return -1;
  const std::int32_t added = encoder.added_tokens().find(token);
  return added >= 0 ? added : encoder.vocabulary().find(token);
}

// As in transformers, add_bos_token and add_eos_token apply only without a post-processor.
PostProcessor make_post_processor(const TokenizerFile& file, const Encoder& encoder) {
  if (!file.post_processor.is_null()) return PostProcessor(file.post_processor, file.path);
  return PostProcessor::make_bos_eos_processor(
      file.add_bos.value_or(false) ? find_token_id(encoder, file.bos) : -1,
      file.add_eos.value_or(false) ? find_token_id(encoder, file.eos) : -1);
}

EncodedTokens concatenate_tokens(std::vector<EncodedTokens>& parts) {
  if (parts.size() == 1) return std::move(parts.front());
  EncodedTokens all;
  for (auto& part : parts) {
    all.ids.insert(all.ids.end(), part.ids.begin(), part.ids.end());
    all.offsets.insert(all.offsets.end(), part.offsets.begin(), part.offsets.end());
    std::ranges::move(part.strings, std::back_inserter(all.strings));
  }
  return all;
}

void truncate_tokens(EncodedTokens& tokens, std::size_t count, bool keep_last) {
  const auto shorten = [&](auto& list) {
    if (list.size() <= count) return;
    if (keep_last) {
      list.erase(list.begin(), list.end() - static_cast<std::ptrdiff_t>(count));
    } else {
      list.resize(count);
    }
  };
  shorten(tokens.ids);
  shorten(tokens.offsets);
  shorten(tokens.strings);
}

// Converts byte offsets to character offsets. Offsets may lie beyond the end of the text if a
// subword prefix was encoded with byte fallback; results then match the Hugging Face library.
void convert_to_character_offsets(std::string_view text, std::vector<TokenOffset>& offsets) {
  std::vector<std::int64_t> characters(text.size() + 1);
  std::int64_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    count += !utf8::is_continuation_byte(text[i]);
    characters[i] = count - 1;
  }
  characters[text.size()] = count;
  for (auto& [begin, end] : offsets) {
    if (begin >= std::ssize(text)) continue;
    begin = characters[as_index(begin)];
    end = end > std::ssize(text) ? begin + 2 : characters[as_index(end)];
  }
}

}  // namespace

bool has_tokenizer(const std::string& folder_or_file) {
  return translate_exceptions([&] {
    const auto own = std::filesystem::path(folder_or_file) / "tokenizer.json";
    return path_exists(own.string()) || !find_gguf_tokenizer(folder_or_file).empty();
  });
}

struct Tokenizer::State {
  explicit State(TokenizerFile file)
      : encoder(make_tokenization_pipeline(file)),
        post_processor(make_post_processor(file, encoder)),
        decoder(make_decoder(file.decoder, file.path)),
        bos(find_token_id(encoder, file.bos)),
        eos(find_token_id(encoder, file.eos)),
        truncates_left(file.truncates_left) {}

  // Returns the workspace of the calling thread; its word cache is kept per tokenizer.
  Encoder::EncodingWorkspace& thread_workspace() const {
    thread_local std::uint64_t owner = 0;
    thread_local std::unique_ptr<Encoder::EncodingWorkspace> workspace;
    if (owner != serial) workspace = std::make_unique<Encoder::EncodingWorkspace>();
    owner = serial;
    return *workspace;
  }

  EncodedTokens encode_piece(std::string_view text, std::size_t begin, std::size_t end,
                             bool sources) {
    EncodedTokens tokens;
    encoder.encode(text, {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)},
                   sources, thread_workspace(), tokens);
    return tokens;
  }

  Encoding encode(std::string_view text, const EncodeOptions& options) {
    if (text.size() > std::numeric_limits<std::uint32_t>::max() / 4)
      reject("a text of {} bytes is too long; the limit is 1 GiB", text.size());
    const auto added = options.add_special_tokens ? post_processor.added_special_token_count() : 0;
    if (options.max_length < 0 || (options.max_length > 0 && options.max_length < added))
      reject("max_length is {}, but the tokenizer adds {} special tokens to every text",
             options.max_length, added);
    Encoding encoding;
    EncodedTokens tokens;
    if (options.max_length == 0) {
      tokens = encode_whole_text(text, options.offsets);
    } else {
      const auto wanted = static_cast<std::size_t>(options.max_length - added);
      tokens = encode_from_one_end(text, wanted, truncates_left, options.offsets);
      encoding.truncated = tokens.ids.size() > wanted;
      truncate_tokens(tokens, wanted, truncates_left);
    }
    if (options.offsets) convert_to_character_offsets(text, tokens.offsets);
    post_processor.apply(tokens, options.add_special_tokens);
    encoding.ids = std::move(tokens.ids);
    if (options.offsets) encoding.offsets = std::move(tokens.offsets);
    return encoding;
  }

  EncodedTokens encode_whole_text(std::string_view text, bool sources) {
    if (text.size() < kParallelBytes) return encode_from_one_end(text, kUnlimited, false, sources);
    std::vector<std::size_t> cuts = {0};
    while (cuts.back() < text.size())
      cuts.push_back(
          encoder.next_split_position(text, std::min(cuts.back() + kPieceBytes, text.size())));
    std::vector<EncodedTokens> parts(cuts.size() - 1);
    parallel_for(std::ssize(parts), [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      parts[at] = encode_piece(text, cuts[at], cuts[at + 1], sources);
    });
    return concatenate_tokens(parts);
  }

  // Encodes pieces from one end of the text until there are more than `wanted` tokens.
  EncodedTokens encode_from_one_end(std::string_view text, std::size_t wanted, bool last,
                                    bool sources) {
    std::vector<EncodedTokens> parts;
    std::size_t count = 0, begin = 0, end = text.size();
    while (begin < end && count <= wanted) {
      const auto size = std::min({(wanted + 1 - count) * kBytesPerId, kPieceBytes, end - begin});
      const auto cut = last ? encoder.previous_split_position(text, end - size)
                            : encoder.next_split_position(text, begin + size);
      parts.push_back(last ? encode_piece(text, cut, end, sources)
                           : encode_piece(text, begin, cut, sources));
      count += parts.back().ids.size();
      (last ? end : begin) = cut;
    }
    if (last) std::ranges::reverse(parts);
    return concatenate_tokens(parts);
  }

  std::string token_string(std::int32_t id) const {
    if (const auto added = encoder.added_tokens().token_string(id)) return std::string(*added);
    return std::string(encoder.vocabulary().token_string(id).value_or(""));
  }

  Encoder encoder;
  PostProcessor post_processor;
  Decoder decoder;
  std::int32_t bos;  // id; -1 if the tokenizer has none
  std::int32_t eos;
  bool truncates_left;
  inline static std::atomic<std::uint64_t> tokenizer_count{0};
  std::uint64_t serial = ++tokenizer_count;  // distinguishes tokenizers at the same address
};

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const std::string& folder_or_file) {
  return translate_exceptions([&] {
    const auto gguf = find_gguf_tokenizer(folder_or_file);
    return Tokenizer(std::make_unique<State>(gguf.empty() ? read_tokenizer_file(folder_or_file)
                                                          : read_gguf_tokenizer(gguf)));
  });
}

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name) {
  return translate_exceptions(
      [&] { return Tokenizer(std::make_unique<State>(parse_tokenizer_json(json, name))); });
}

Tokenizer::Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return translate_exceptions([&] { return state_->encode(text, options); });
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  return translate_exceptions([&] {
    std::vector<std::string> tokens;
    for (const std::int32_t id : ids) {
      std::string token = state_->token_string(id);
      if (token.empty()) continue;
      if (skip_special && state_->encoder.added_tokens().is_special(token)) continue;
      tokens.push_back(std::move(token));
    }
    return state_->decoder(std::move(tokens));
  });
}

std::string Tokenizer::token_string(std::int32_t id) const {
  return translate_exceptions([&] { return state_->token_string(id); });
}

std::optional<std::int32_t> Tokenizer::bos_id() const {
  return state_->bos < 0 ? std::nullopt : std::optional(state_->bos);
}

std::optional<std::int32_t> Tokenizer::eos_id() const {
  return state_->eos < 0 ? std::nullopt : std::optional(state_->eos);
}

std::vector<std::int32_t> Tokenizer::prefix_ids() const {
  const auto plain = encode("a", {.add_special_tokens = false}).ids;
  const auto whole = encode("a").ids;
  return {whole.begin(), std::search(whole.begin(), whole.end(), plain.begin(), plain.end())};
}

std::int64_t Tokenizer::vocab_size() const {
  return translate_exceptions([&] {
    const auto& vocabulary = state_->encoder.vocabulary();
    return static_cast<std::int64_t>(
        vocabulary.size() + state_->encoder.added_tokens().count_tokens_missing_from(vocabulary));
  });
}

}  // namespace qkscope
