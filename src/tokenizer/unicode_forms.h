// The four normalization forms of Unicode.
#pragma once

#include "tokenizer/aligned_text.h"

namespace qkscope {

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

void normalize(AlignedText& text, UnicodeForm form);

}  // namespace qkscope
