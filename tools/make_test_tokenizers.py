#!/usr/bin/env python3
"""Writes tests/input/tokenizer/data/*.json: small tokenizers, one for each construction of a tokenizer.

The models are trained on random generated texts, so every run writes the same files. Usage:
tools/make_test_tokenizers.py (needs the Python package tokenizers).
"""

import json
import pathlib
import sys

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/input/tokenizer" / "data"
sys.path.insert(0, str(ROOT / "tests/input/tokenizer"))
from random_texts import RandomTexts  # noqa: E402

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPACES_THEN_WORD = r"\s*[a-zA-Z]+|[0-9]+|[^\sa-zA-Z0-9]+|\s+"  # not one of the known patterns


def trained(pre_tokenizer, size, **trainer_options):
    """Returns vocabulary and merges of a model trained on words of `pre_tokenizer`."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    texts = RandomTexts(seed=7)
    corpus = [texts.words() for _ in range(3000)] + [texts.code() for _ in range(200)]
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, **trainer_options)
    tokenizer.train_from_iterator(corpus, trainer)
    return json.loads(tokenizer.to_str())["model"]


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, regex=False, trim=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": regex}


def metaspace(scheme, splits):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": splits}


def sequence(kind, *parts):
    return {"type": "Sequence", kind: list(parts)}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def template(ids, *pieces):
    single = [{"Sequence": {"id": "A", "type_id": 0}} if p == "$A" else {"SpecialToken": {"id": p, "type_id": 0}}
              for p in pieces]
    pair = single + [{"Sequence": {"id": "B", "type_id": 1}}]
    special = {p: {"id": p, "ids": [ids[p]], "tokens": [p]} for p in pieces if p != "$A"}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def added(content, **flags):
    token = dict(content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    return {**token, **flags}


SPECIAL = [added("<s>"), added("</s>"), added("<|pad|>")]
BYTE_DECODER = byte_level()
MARK_DECODER = sequence("decoders", replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                        {"type": "Strip", "content": " ", "start": 1, "stop": 0})


def write(name, model, tokens=SPECIAL, **parts):
    model = json.loads(json.dumps(model))
    tokens = [dict(t) for t in tokens]
    size, known = len(model["vocab"]), {}
    for token in tokens:  # ids in the order in which the library assigns them
        content = token["content"]
        known[content] = model["vocab"].get(content, size)
        size += known[content] == size
        token["id"] = known[content]
    post = parts.get("post_processor")
    if callable(post):
        parts["post_processor"] = post(known)
    file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": None,
            "pre_tokenizer": None, "post_processor": None, "decoder": None, **parts, "model": model}
    text = json.dumps(file, ensure_ascii=False, separators=(",", ":"))
    tokenizers.Tokenizer.from_str(text)  # the library must accept the file
    (OUT / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def byte_models():
    model = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), 520,
                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    bos = lambda ids: template(ids, "<s>", "$A")  # noqa: E731
    old = {k: v for k, v in model.items() if k != "type"}
    old["merges"] = [" ".join(pair) for pair in model["merges"]]
    write("gpt2", old, pre_tokenizer=byte_level(prefix=False, regex=True), decoder=BYTE_DECODER,
          post_processor=byte_level(prefix=True, trim=False), tokens=[added("<|end|>", normalized=True)])
    write("gpt2-prefix", model, pre_tokenizer=byte_level(prefix=True, regex=True), decoder=BYTE_DECODER,
          post_processor=byte_level(prefix=True, trim=True))
    whole = {**model, "ignore_merges": True}
    whole["vocab"] = {**whole["vocab"], "Ġthere": 520, "HelloĠ": 521, "Ġqkscope": 522}
    write("llama3", whole, pre_tokenizer=sequence("pretokenizers", split(LLAMA3), byte_level()),
          decoder=BYTE_DECODER,
          post_processor=lambda ids: sequence("processors", byte_level(prefix=True, trim=False), bos(ids)))
    write("qwen2", model, normalizer={"type": "NFC"}, decoder=BYTE_DECODER, post_processor=byte_level(trim=False),
          pre_tokenizer=sequence("pretokenizers", split(QWEN2), byte_level(trim=False)),
          tokens=[added("<|im|>"), added("<think>", special=False)])
    write("tekken", whole, pre_tokenizer=sequence("pretokenizers", split(TEKKEN), byte_level()),
          decoder=BYTE_DECODER, post_processor=lambda ids: template(ids, "<s>", "$A", "</s>"))
    write("glm", model, pre_tokenizer=sequence("pretokenizers", split(LLAMA3), byte_level()), decoder=BYTE_DECODER,
          tokens=[added("[gMASK]"), added("<sop>")], post_processor=lambda ids: template(ids, "[gMASK]", "<sop>", "$A"))
    write("roberta", model, pre_tokenizer=byte_level(prefix=False, regex=True), decoder=BYTE_DECODER,
          tokens=SPECIAL + [added("<mask>", lstrip=True)],
          post_processor=lambda ids: {"type": "RobertaProcessing", "sep": ["</s>", ids["</s>"]],
                                      "cls": ["<s>", ids["<s>"]], "trim_offsets": True, "add_prefix_space": True})
    write("falcon", model, decoder=BYTE_DECODER, pre_tokenizer=sequence(
        "pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, byte_level(regex=True),
        {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]")))
    write("starcoder", model, decoder=BYTE_DECODER, pre_tokenizer=sequence(
        "pretokenizers", {"type": "Digits", "individual_digits": True}, byte_level(regex=True)))
    write("other-pattern", model, decoder=BYTE_DECODER,
          pre_tokenizer=sequence("pretokenizers", split(SPACES_THEN_WORD), byte_level()))
    write("gpt2-removed", model, pre_tokenizer=sequence(
        "pretokenizers", split(r"\s+", "Removed"), split(r"[aeiou]+", "MergedWithPrevious"), byte_level(prefix=True)))
    short = {**model, "unk_token": "<unk>", "fuse_unk": True}
    drop = {"Ġ", "z", "Ã"}
    kept = [t for t in model["vocab"] if not any(c in drop for c in t)] + ["<unk>"]
    short["vocab"] = {t: i for i, t in enumerate(kept)}
    short["merges"] = [m for m in model["merges"] if not any(c in drop for c in m[0] + m[1])]
    write("bytes-missing", short, pre_tokenizer=byte_level(regex=True), decoder=BYTE_DECODER)
    write("bytes-dropped", {**short, "unk_token": None}, pre_tokenizer=byte_level(regex=True), decoder=BYTE_DECODER)


def character_models():
    model = trained(pre_tokenizers.Metaspace(), 700, limit_alphabet=240)
    tokens = list(dict.fromkeys(["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + list(model["vocab"])))
    full = {**model, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    full["vocab"] = {t: i for i, t in enumerate(tokens)}
    bos = lambda ids: template(ids, "<s>", "$A")  # noqa: E731
    write("llama2", full, tokens=SPECIAL[:2] + [added("<unk>")], decoder=MARK_DECODER, post_processor=bos,
          normalizer=sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")))
    write("mistral", full, tokens=SPECIAL[:2] + [added("[INST]")], decoder=MARK_DECODER, post_processor=bos,
          pre_tokenizer=metaspace("first", False))
    write("gemma", full, tokens=[added("<s>"), added("\n\n", special=False), added("<a b>", special=False)],
          decoder=MARK_DECODER, post_processor=bos, normalizer=replace(" ", "▁"),
          pre_tokenizer=split(" ", "MergedWithPrevious", kind="String"))
    for scheme in ("always", "never", "first"):
        decoder = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
        write(f"metaspace-{scheme}", full, pre_tokenizer=metaspace(scheme, True), decoder=decoder)
    write("metaspace-strip", full, pre_tokenizer=metaspace("first", True), decoder=MARK_DECODER, normalizer=sequence(
        "normalizers", {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "NFKC"}))
    partial = {**full, "fuse_unk": False}
    partial["vocab"] = {t: i for i, t in enumerate(t for t in tokens if t not in ("<0xE4>", "<0xD0>", "<0x9F>"))}
    write("fallback-holes", partial, pre_tokenizer={"type": "WhitespaceSplit"})
    write("unknown-single", {**model, "vocab": {**model["vocab"], "<unk>": len(model["vocab"])}, "unk_token": "<unk>"},
          pre_tokenizer=metaspace("always", True), normalizer={"type": "NFD"})
    words = {**model, "vocab": {**model["vocab"], "<unk>": len(model["vocab"])}, "unk_token": "<unk>", "fuse_unk": True}
    write("unknown-fused", words, pre_tokenizer=metaspace("never", False), normalizer={"type": "NFKD"})


def word_models():
    prefix = trained(pre_tokenizers.Whitespace(), 500, continuing_subword_prefix="##", limit_alphabet=150,
                     special_tokens=["[UNK]"])
    prefix["unk_token"] = "[UNK]"
    lower = sequence("normalizers", {"type": "Strip", "strip_left": True, "strip_right": False}, {"type": "NFKC"},
                     {"type": "Lowercase"})
    write("prefix", prefix, normalizer=lower, pre_tokenizer={"type": "Whitespace"})
    plain = {**trained(pre_tokenizers.Whitespace(), 500, limit_alphabet=200, special_tokens=["[UNK]"]),
             "unk_token": "[UNK]"}
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        write(f"split-{behavior}", plain, normalizer=replace(r"[0-9]+", "0", kind="Regex"), pre_tokenizer=sequence(
            "pretokenizers", split(r"\s", behavior), split("e", behavior, kind="String"),
            {"type": "Punctuation", "behavior": behavior}))
        write(f"invert-{behavior}", plain, pre_tokenizer=split(r"\w+", behavior, invert=True), normalizer=sequence(
            "normalizers", replace("ab", "c"), {"type": "Prepend", "prepend": "_x"}))
    zoo = [added("[lo]", normalized=True, special=False), added("Word", single_word=True, normalized=True),
           added("<l>", lstrip=True), added("<r>", rstrip=True), added("<lr>", lstrip=True, rstrip=True),
           added("THE", normalized=True, rstrip=True, special=False), added("é", normalized=True, special=False),
           added("one", single_word=True, special=False), added("on", special=False), added(" sp ace", special=False)]
    write("added", plain, tokens=zoo, pre_tokenizer={"type": "WhitespaceSplit"},
          normalizer=sequence("normalizers", {"type": "NFC"}, {"type": "Lowercase"}))
    write("added-raw", plain, tokens=zoo, pre_tokenizer={"type": "Whitespace"})


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    byte_models()
    character_models()
    word_models()


if __name__ == "__main__":
    main()
