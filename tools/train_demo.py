#!/usr/bin/env python3
"""Trains the demo's miniature of SmolLM3 through pre-training and context extension.

    python tools/train_demo.py --out share/demo [--device cuda] [--seed 1]

writes OUT/checkpoints/LABEL/ (ten ordinary Hugging Face folders: bfloat16 safetensors, config.json with
the stage's theta and length, tokenizer.json) and OUT/corpus.jsonl (held-out texts for the capture). Needs torch,
transformers and tokenizers; takes minutes on one GPU. The same seed gives the same texts and the same tokenizer; weights
are equal as far as the GPU's arithmetic is deterministic.

--scale 0.01 shortens every stage, for a quick trial of the whole pipeline.
"""

import argparse
import json
import multiprocessing
import pathlib
import time
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, SmolLM3Config, SmolLM3ForCausalLM

from demo.corpus import book

VOCABULARY = 1024
END = "<|end_of_text|>"
BOOK_CHARACTERS = 9000  # a book has more than BOOK_TOKENS tokens
BOOK_TOKENS = 2305
TOKENS_PER_STEP = 16384
FROM_START = 0.5  # fraction of windows that start at the beginning of a book
TRAINING_SEED = "training"
CAPTURE_SEED = "capture"


@dataclass
class Stage:
    phase: str
    steps: int
    context: int
    theta: float
    books: int
    questions: int  # frequency of questions in the books
    rate: tuple[float, float]  # learning rate at the first and last step
    checkpoints: dict[int, str]  # step within the stage → label


# Steps of pre-training are those of SmolLM3-3B divided by 1,000. As there, the rate is constant through
# stages 1 and 2 and falls in stage 3, and each extension starts from a fresh, lower rate.
STAGES = [
    Stage("stage1", 3440, 256, 5e3, 16000, 3, (8e-3, 8e-3), {40: "S1-40", 1200: "S1-1200", 2400: "S1-2400", 3440: "S1-3440"}),
    Stage("stage2", 760, 256, 5e3, 4000, 4, (8e-3, 8e-3), {760: "S2-4200"}),
    Stage("stage3", 520, 256, 5e3, 4000, 5, (8e-3, 8e-4), {520: "S3-4720"}),
    Stage("LC 256→1K", 1200, 1024, 1e5, 8000, 5, (4e-3, 8e-4), {240: "LC1-240", 1200: "LC1-1200"}),
    Stage("LC 1K→2K", 1200, 2048, 5e5, 8000, 5, (4e-3, 4e-4), {240: "LC2-240", 1200: "LC2-1200"}),
]


def make_book(arguments):
    seed, number, questions = arguments
    return book(seed, number, BOOK_CHARACTERS, questions)


def make_books(seed, count, questions):
    with multiprocessing.Pool() as pool:
        return pool.map(make_book, [(seed, number, questions) for number in range(count)], chunksize=64)


def train_tokenizer(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode_books(tokenizer, texts):
    """Returns token ids, (books, BOOK_TOKENS) int64."""
    ids = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    shortest = min(len(row) for row in ids)
    if shortest < BOOK_TOKENS:
        raise SystemExit(f"a book has only {shortest} tokens, expected {BOOK_TOKENS}: raise BOOK_CHARACTERS")
    return torch.tensor([row[:BOOK_TOKENS] for row in ids])


def model_config(stage):
    return SmolLM3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=224,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=stage.context,
        rope_parameters={"rope_type": "default", "rope_theta": stage.theta},
        no_rope_layer_interval=4,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        use_cache=False,
    )


def batches(books, stage, generator):
    """Yields windows (sequences, context + 1) forever; a fraction of them starts at the beginning of a book."""
    count = TOKENS_PER_STEP // stage.context
    window = torch.arange(stage.context + 1, device=books.device)
    while True:
        which = torch.randint(len(books), (count, 1), generator=generator, device=books.device)
        start = torch.randint(BOOK_TOKENS - stage.context, (count, 1), generator=generator, device=books.device)
        start[: round(count * FROM_START)] = 0
        yield books[which, start + window]


def learning_rate(stage, step):
    first, last = stage.rate
    warm = min(1.0, step / 100)
    return warm * (first + (last - first) * step / stage.steps)


def save(model, tokenizer, folder):
    copy = SmolLM3ForCausalLM(model.config)
    copy.load_state_dict(model.state_dict())
    copy.to(torch.bfloat16).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=END, model_max_length=model.config.max_position_embeddings
    ).save_pretrained(folder)


def train_stage(model, stage, books, tokenizer, options):
    generator = torch.Generator(books.device).manual_seed(options.seed)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    keep = {max(1, round(step * options.scale)): label for step, label in stage.checkpoints.items()}
    steps = max(keep)
    for step, batch in zip(range(1, steps + 1), batches(books, stage, generator)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(stage, step / options.scale)
        with torch.autocast(books.device.type, dtype=torch.bfloat16):
            logits = model(input_ids=batch[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step in keep:
            save(model, tokenizer, options.out / "checkpoints" / keep[step])
            print(f"{stage.phase:12} {keep[step]:9} loss {loss.item():.4f}", flush=True)


def write_corpus(path, count):
    with open(path, "w", encoding="utf-8") as file:
        for number, text in enumerate(make_books(CAPTURE_SEED, count, STAGES[-1].questions)):
            file.write(json.dumps({"id": number, "text": text}) + "\n")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--capture-books", type=int, default=200, help="books written for the capture")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on every number of steps")
    return parser.parse_args()


def main():
    options = parse_arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    write_corpus(options.out / "corpus.jsonl", options.capture_books)
    tokenizer = train_tokenizer(make_books(TRAINING_SEED, 500, STAGES[0].questions))
    torch.manual_seed(options.seed)
    model, state = None, None
    for number, stage in enumerate(STAGES):
        start = time.time()
        texts = make_books(f"{TRAINING_SEED} {number}", max(8, round(stage.books * options.scale)), stage.questions)
        books = encode_books(tokenizer, texts).to(options.device)
        print(f"{stage.phase:12} {books.numel() / 1e6:.1f} M tokens in {time.time() - start:.0f} s", flush=True)
        model = SmolLM3ForCausalLM(model_config(stage)).to(options.device)
        if state is not None:
            model.load_state_dict(state)
        train_stage(model, stage, books, tokenizer, options)
        state = model.state_dict()
        print(f"{stage.phase:12} {time.time() - start:.0f} s", flush=True)
    parameters = sum(p.numel() for p in model.parameters())
    size = sum(f.stat().st_size for f in (options.out / "checkpoints").rglob("*") if f.is_file())
    print(f"{parameters:,} parameters; ten checkpoints: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
