"""Checks with the tokenizers library that the tokenizer of FOLDER encodes a text as bytes and decodes it again."""
import sys

import tokenizers

tokenizer = tokenizers.Tokenizer.from_file(f"{sys.argv[1]}/tokenizer.json")
for text in ("Hello, world!", " two  spaces\n\ttab", "naïve — 位置 🙂", "".join(map(chr, range(256)))):
    ids = tokenizer.encode(text).ids
    assert ids == list(text.encode()), (text, ids)
    assert tokenizer.decode(ids) == text, (text, tokenizer.decode(ids))
