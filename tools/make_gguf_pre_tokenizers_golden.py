#!/usr/bin/env python3
"""Writes tests/input/tokenizer/data/gguf_pre_tokenizers.json: token ids of the Hugging Face library for every pre-tokenizer
name of GGUF files.

    python tools/make_gguf_pre_tokenizers_golden.py [--out FILE]

Needs tokenizers from PyPI. Every row has the names that share one pre-tokenizer, the components of the tokenizer.json of
these models, and the ids of the texts. The vocabulary is learned from the texts without pre-tokenization, so that tokens
cross the boundaries of every pre-tokenizer. The expressions are those of the published tokenizer.json files,
Kimi's that of its tiktoken tokenizer. docs/how-to/checkpoints.md lists the names whose expressions are llama.cpp's.
"""

import argparse
import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

OUT = Path(__file__).parent.parent / "tests/input/tokenizer/data/gguf_pre_tokenizers.json"
TEXTS = [
    "1 12 123 1234 12345 123456 1234567 a1b22c333d4444 x1234567y 3.14159 1,000,000",
    "\u00bd 12\u00bd \u00b2x\u00b3 \u0661\u0662\u0663\u0664\u0665 \u2163 \u30071\u3007",
    "it's we're I've I'm you'll he'd can't IT'S WE'RE I'VE I'M YOU'LL HE'D 'Twas rock'n'roll 'llama it\u2019s it'\u017f",
    "camelCase HTTPServer iPhone's ABCdef McDonald'S \u01c5abc",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002  \u6f22\u5b57abc \u3053\u3093\u306b\u3061\u306f\u30c6\u30b9\u30c8\u3005 !\u2e80\u6f22 \u3400x",
    "\uc548\ub155 \uc138\uacc4\uc778\u3131\u314f \u1112\u1161\u11ab \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0e40\u0e17\u0e2a\u0e15\u0e4c \u1780\u17b6 \u1019\u103c",
    "e\u0301te\u0301 \u00e9t\u00e9 nai\u0308ve \u0939\u093f\u0928\u094d\u0926\u0940 \u05e9\u05b8 \u0301x !\u0301y",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u039a\u03b1\u03bb\u03ae \u2126\u212a\u212b \u10d0\u10d1 \u0531\u0561 \U00010400\U00010428 \U0001d400b",
    "a\n b\n  c\n\n d \n \n\te\r\nf \r\n\r\n  g\n",
    "\ta\t\tb \t c  d   e    f     ",
    "   x\u00a0\u00a0y\u3000z\u2028w\u200bv",
    "\U0001f600\U0001f680 ok\U0001f468\u200d\U0001f469\u200d\U0001f467! \U0001f44d\U0001f3fd\u2764\ufe0f",
    "!!! ??? ... --- ''' \"\"\" ## (a) [b] {c} <d> e=f; $x_y @z a/b/\n//c\\d ~^`| !?\n\n",
    "\u00abq\u00bb \u2014 \u2026 \u201cr\u201d \uff01\uff1f\u3000\uff21\uff42 \u20ac5 \u00a310 \u2192 \u2211 :abc #tag .net !x -y",
    " ",
    "\n",
    "a",
]

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SEED_CODER = CONTRACTIONS + "|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
NUMBER, LINES = r"|\p{N}{1,3}", r"|\s*[\r\n]+|\s+(?!\S)|\s+"


def cased_words(upper, lower, contraction):
    prefix = r"[^\r\n\p{L}\p{N}]?"
    return f"{prefix}[{upper}]*[{lower}]+{contraction}|{prefix}[{upper}]+[{lower}]*{contraction}"


GPT4O = cased_words(UPPER, LOWER, CONTRACTIONS + "?") + NUMBER + r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + LINES
TEKKEN = cased_words(UPPER, LOWER, "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + LINES
NOT_HAN = r"&&[^\p{Han}]"
KIMI = (r"[\p{Han}]+|" + cased_words(UPPER + NOT_HAN, LOWER + NOT_HAN, CONTRACTIONS + "?") + NUMBER +
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + LINES)
DEEPSEEK_V3 = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
               "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
DEEPSEEK_IDEOGRAPHS = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
CASED_LETTERS = [  # ranges of code points
    (0x41, 0x5A), (0x61, 0x7A), 0xB5, (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x1BA), (0x1BC, 0x1BF), (0x1C4, 0x293),
    (0x295, 0x2AF), (0x370, 0x373), 0x376, 0x377, (0x37B, 0x37D), 0x37F, 0x386, (0x388, 0x38A), 0x38C, (0x38E, 0x3A1),
    (0x3A3, 0x3F5), (0x3F7, 0x481), (0x48A, 0x52F), (0x531, 0x556), (0x10A0, 0x10C5), (0x13A0, 0x13F5), (0x13F8, 0x13FD),
    (0x1C90, 0x1CBA), (0x1CBD, 0x1CBF), (0x1D00, 0x1D2B), (0x1D6B, 0x1D77), (0x1D79, 0x1D9A), (0x1E00, 0x1F15),
    (0x1F18, 0x1F1D), (0x1F20, 0x1F45), (0x1F48, 0x1F4D), (0x1F50, 0x1F57), 0x1F59, 0x1F5B, 0x1F5D, (0x1F5F, 0x1F7D),
    (0x1F80, 0x1FB4), (0x1FB6, 0x1FBC), 0x1FBE, (0x1FC2, 0x1FC4), (0x1FC6, 0x1FCC), (0x1FD0, 0x1FD3), (0x1FD6, 0x1FDB),
    (0x1FE0, 0x1FEC), (0x1FF2, 0x1FF4), (0x1FF6, 0x1FFC), 0x2102, 0x2107, (0x210A, 0x2113), 0x2115, (0x2119, 0x211D),
    0x2124, 0x2126, 0x2128, (0x212A, 0x212D), (0x212F, 0x2134), 0x2139, (0x213C, 0x213F), (0x2145, 0x2149), 0x214E,
    (0x2183, 0x2184), (0x2C00, 0x2C7B), (0x2C7E, 0x2CE4), (0x2CEB, 0x2CEE), 0x2CF2, 0x2CF3, (0xA640, 0xA66D),
    (0xA680, 0xA69B), (0xA722, 0xA76F), (0xA771, 0xA787), (0xA78B, 0xA78E), (0xAB70, 0xABBF), (0xFB00, 0xFB06),
    (0xFB13, 0xFB17), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A), (0x10400, 0x1044F), (0x104B0, 0x104D3), (0x104D8, 0x104FB),
    (0x10C80, 0x10CB2), (0x10CC0, 0x10CF2), (0x118A0, 0x118DF), (0x1E900, 0x1E943)]
DEEPSEEK_LETTERS = r"\s?[" + "".join(chr(r) if isinstance(r, int) else f"{chr(r[0])}-{chr(r[1])}" for r in CASED_LETTERS) + "]+"
TRINITY_SCRIPTS = ("[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
                   "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+")


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(regex=False):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": regex}


def row(names, *stages, nfc=False, ignore_merges=False):
    return {"names": names.split(), "normalizer": {"type": "NFC"} if nfc else None, "ignore_merges": ignore_merges,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(stages)}}


DIGITS = {"type": "Digits", "individual_digits": True}
ROWS = [
    row("gpt-2 exaone4 granite-docling trillion mellum gigachat a.x-4.0", byte_level(regex=True)),
    row("olmo mpt", byte_level(regex=True), nfc=True),
    row("smollm starcoder refact minerva-7b", DIGITS, byte_level(regex=True)),
    row("command-r", DIGITS, byte_level(regex=True), nfc=True),
    row("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0 glm4 chatglm-bpe", split(LLAMA3), byte_level(),
        ignore_merges=True),
    row("smaug-bpe dbrx", split(LLAMA3, "Removed", True), byte_level()),
    row("qwen2 deepseek-r1-qwen", split(QWEN2), byte_level(), nfc=True),
    row("qwen35", split(QWEN35), byte_level(), nfc=True),
    row("megrez", split(QWEN2), byte_level()),
    row("seed-coder", split(SEED_CODER), byte_level()),
    row("tekken", split(TEKKEN), byte_level(), ignore_merges=True),
    row("gpt-4o llama4", split(GPT4O), byte_level(), ignore_merges=True),
    row("minimax-m2 kanana2", split(GPT4O, "Removed", True), byte_level()),
    row("tiny_aya", split(r"\d{1,3}(?=(?:\d{3})*\b)"), split(GPT4O), byte_level()),
    row("kimi-k2", split(KIMI), byte_level(), ignore_merges=True),
    row("deepseek-llm", split("[\r\n]"), split(DEEPSEEK_LETTERS),
        split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"), split(r"\s+$"),
        split(DEEPSEEK_IDEOGRAPHS), DIGITS, byte_level()),
    row("deepseek-coder", split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(DEEPSEEK_IDEOGRAPHS), DIGITS,
        byte_level()),
    row("deepseek-v3 joyai-llm hunyuan-dense", split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
        split(DEEPSEEK_V3), byte_level()),
    row("afmoe", split(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|\z))"), split(TRINITY_SCRIPTS), split(DEEPSEEK_V3), byte_level()),
    row("superbpe", split(r"\p{N}+"), split(r"(?=(\d{3})+(?!\d))"), byte_level()),
]


def learn_vocabulary():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=1100, show_progress=False, max_token_length=6,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXTS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    # No merge makes the last token: only a tokenizer that ignores merges for whole words finds it.
    return {"tokens": [*tokens, "\u0120HTTPServer"], "merges": [" ".join(m) for m in model["merges"]]}


def encode(vocabulary, part):
    file = {"version": "1.0", "added_tokens": [], "normalizer": part["normalizer"], "pre_tokenizer": part["pre_tokenizer"],
            "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(vocabulary["tokens"])},
                      "merges": vocabulary["merges"], "ignore_merges": part["ignore_merges"]}}
    tokenizer = Tokenizer.from_str(json.dumps(file))
    return [tokenizer.encode(text).ids for text in TEXTS]


def main():
    parser = argparse.ArgumentParser(description="Ask the Hugging Face library for the ids of texts.")
    parser.add_argument("--out", type=Path, default=OUT)
    out = parser.parse_args().out
    vocabulary = learn_vocabulary()
    for part in ROWS:
        part["ids"] = encode(vocabulary, part)
    splits = [json.dumps(part["ids"]) for part in ROWS]
    for i, part in enumerate(ROWS):
        same = [other["names"][0] for j, other in enumerate(ROWS) if splits[i] == splits[j] and i != j]
        if same:
            print(part["names"][0], "has the same ids as", *same)
    lines = [json.dumps(part, ensure_ascii=False, separators=(",", ":")) for part in ROWS]
    head = "".join(f"{json.dumps(key)}:{json.dumps(value)},\n" for key, value in {"texts": TEXTS, **vocabulary}.items())
    out.write_text("{" + head + '"rows":[\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
