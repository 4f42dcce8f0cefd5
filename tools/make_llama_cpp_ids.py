#!/usr/bin/env python3
"""Writes tests/input/tokenizer/data/llama_cpp_ids.json: llama.cpp's token ids of texts, for pre-tokenizers.

    python tools/make_llama_cpp_ids.py [--out tests/input/tokenizer/data/llama_cpp_ids.json]

Needs gguf, tokenizers and xllamacpp from PyPI; xllamacpp includes llama.cpp, whose C functions are called. The vocabulary
is learned from the texts without pre-tokenization, so that tokens cross every boundary of every pre-tokenizer and no two
pre-tokenizers give the same ids. Texts are in NFC and have no combining marks: llama.cpp does not normalize, and only
approximates the treatment of marks in the expressions of Tekken and GPT-4o, where qkscope follows the models' own
tokenizer.json. For the same reason afmoe, deepseek-llm, kimi-k2 and tiny_aya are missing: llama.cpp joins the digits of
deepseek-llm, does not split spaces from the numbers of afmoe and tiny_aya, and joins "iP" in the words of kimi-k2 and tiny_aya.
"""

import argparse
import ctypes
import json
import tempfile
import unicodedata
from pathlib import Path

import gguf
import numpy as np
import tokenizers
import xllamacpp

OUT = Path(__file__).parent.parent / "tests/input/tokenizer" / "data" / "llama_cpp_ids.json"
PRE = [  # the names on a line are the same to llama.cpp
    "gpt-2 exaone4 granite-docling trillion mellum gigachat a.x-4.0 olmo mpt",
    "smollm starcoder refact minerva-7b command-r",
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0 glm4 chatglm-bpe smaug-bpe dbrx",
    "qwen2 deepseek-r1-qwen megrez qwen35",
    "seed-coder",
    "tekken",
    "gpt-4o llama4 minimax-m2 kanana2",
    "deepseek-coder",
    "deepseek-v3 joyai-llm hunyuan-dense",
    "superbpe",
    "default",
]
TOKENS = 800
TEXTS = [
    "The year 1984, they'll say: HE'S 42000!\n\n  end\t of   it.  \n",
    " leading and trailing ",
    "no 7 is 77 and 777 and 7777, 3.14159 or 1,000,000; x86-64 has 0x7F\u00bd",
    "line one\r\nline two\n\n\n   indented\n\ttabbed\n",
    "It's we're I've I'm you'll he'd, IT'S WE'RE, 'tis rock'n'roll",
    "if (x <= 10 && y != 'z') { return a[i] += b->c * ~d ^ e | $f; }  // ok??",
    "stra\u00dfe caf\u00e9 na\u00efve \u00c9COLE \u010cesko \u0141\u00f3d\u017a \u039a\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3002"
    "\u4f60\u597d\u4e16\u754c\uff0c\uc548\ub155",
    "\U0001f600\U0001f680 emoji \u2014 dashes \u2026 dots \u201cquotes\u201d \u00a0 spaces \u3000 wide \u2028 line",
    "     five spaces, then     five, a\u00a0b",
    "camelCase HTTPServer McDonald iPhone, a path/to/\nfile, what?/\nHe'd camelCase's HTTPServer'll",
    "",
    "a",
    "\n",
    "   ",
    "1 2  3   4    55     666",
    "e-mail: someone@example.org, https://example.org/a_b?c=d&e=f#g",
]


class Parameters(ctypes.Structure):
    """llama_model_params, passed by value; larger than the real struct."""

    _fields_ = [("bytes", ctypes.c_byte * 512)]


def library():
    """Loads llama.cpp's functions and silences its log."""
    path = next(Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))
    lib = ctypes.CDLL(str(path))
    lib.llama_model_default_params.restype = Parameters
    lib.llama_model_load_from_file.restype = ctypes.c_void_p
    lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Parameters]
    lib.llama_model_get_vocab.restype = ctypes.c_void_p
    lib.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
    lib.llama_model_free.argtypes = [ctypes.c_void_p]
    lib.llama_tokenize.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32),
                                   ctypes.c_int32, ctypes.c_bool, ctypes.c_bool]
    logger = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    lib.silence = logger(lambda level, text, data: None)  # keeps the callback alive as long as the library
    lib.llama_log_set.argtypes = [logger, ctypes.c_void_p]
    lib.llama_log_set(lib.silence, None)
    lib.llama_backend_init()
    return lib


def learn_vocabulary():
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=TOKENS, show_progress=False, max_token_length=8,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXTS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return {"tokens": sorted(model["vocab"], key=model["vocab"].get), "merges": [" ".join(m) for m in model["merges"]]}


def write_model(path, vocabulary, pre, width=32):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_types([gguf.TokenType.NORMAL] * len(vocabulary["tokens"]))
    writer.add_token_merges(vocabulary["merges"])
    writer.add_add_bos_token(False)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(width)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tensor("token_embd.weight", np.zeros((len(vocabulary["tokens"]), width), np.float32))
    writer.add_tensor("output_norm.weight", np.zeros(width, np.float32))
    for norm in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{norm}.weight", np.zeros(width, np.float32))
    for matrix in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{matrix}.weight", np.zeros((width, width), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def ids_of(lib, path, texts):
    model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
    if not model:
        raise SystemExit(f"llama.cpp does not load {path}")
    vocabulary = lib.llama_model_get_vocab(model)
    found = []
    for text in texts:
        data = text.encode()
        ids = (ctypes.c_int32 * (len(data) + 8))()
        count = lib.llama_tokenize(vocabulary, data, len(data), ids, len(ids), True, True)
        found.append(ids[:count])
    lib.llama_model_free(model)
    return found


def main():
    parser = argparse.ArgumentParser(description="Ask llama.cpp for the ids of texts.")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    for text in TEXTS:
        assert unicodedata.is_normalized("NFC", text), text
        assert not any(unicodedata.category(character).startswith("M") for character in text), text
    lib = library()
    vocabulary = learn_vocabulary()
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for names in PRE:
            for pre in names.split():
                path = Path(scratch) / f"{pre}.gguf"
                write_model(path, vocabulary, pre)
                ids = ids_of(lib, path, TEXTS)
                assert ids == found.setdefault(names, ids), pre
    for a in PRE:
        assert not any(found[a] == found[b] for b in PRE if a != b), a
    lists = [json.dumps(names) + ":" + json.dumps(ids, separators=(",", ":")) for names, ids in found.items()]
    head = "".join(f"{json.dumps(key)}:{json.dumps(value)},\n" for key, value in {"texts": TEXTS, **vocabulary}.items())
    arguments.out.write_text("{" + head + '"ids":{\n' + ",\n".join(lists) + "\n}}\n")


if __name__ == "__main__":
    main()
