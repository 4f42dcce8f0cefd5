"""The cases of tests/golden: one per family, RoPE type and peculiarity of published files."""

import zlib
from dataclasses import dataclass, field
from typing import Any, Callable

from . import checkpoint
from . import spelling as sp


@dataclass
class Case:
    name: str
    model_type: str
    config: dict[str, Any]
    tokens: int = 37
    dtype: str = "bfloat16"
    rows: int = 10
    pattern_rows: int = 4
    stages: str = "all"  # or "rope": what a RoPE variant can change
    published: Callable | None = None  # how config.json itself is spelled, when not as saved
    spellings: dict[str, Callable] = field(default_factory=dict)
    finish: Callable | None = None  # edits the written folder
    shard_size: str | None = None

    @property
    def seed(self):
        return zlib.crc32(self.name.encode())

    def text_values(self):
        return self.config.get("text_config", self.config)


SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

OLD = {"old": sp.old_rope()}


def default_rope(theta):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}


LLAMA = [
    Case("llama_mha", "llama", SMALL | {"num_key_value_heads": 4} | default_rope(10000.0), dtype="float32",
         tokens=13, rows=13, pattern_rows=13, spellings=OLD),
    Case("llama_gqa", "llama", SMALL | default_rope(500000.0), spellings={"no_head_dim": sp.without("head_dim")}),
    Case("llama_bias", "llama", SMALL | {"attention_bias": True, "mlp_bias": True}, dtype="float16"),
    Case("llama_head_dim", "llama", SMALL | {"head_dim": 12, "num_key_value_heads": 1}, dtype="float16"),
    Case("llama_tied", "llama", SMALL | {"tie_word_embeddings": True}),
    Case("llama_tied_redundant_head", "llama", SMALL | {"tie_word_embeddings": True}, tokens=5,
         finish=checkpoint.add_redundant_head),
    Case("llama_tied_alias", "llama", SMALL | {"tie_word_embeddings": True}, tokens=5, finish=checkpoint.alias_head),
    Case("llama_one_token", "llama", SMALL, tokens=1),
    Case("llama_sharded", "llama", SMALL | {"num_hidden_layers": 3}, tokens=9, shard_size="20KB"),
    Case("llama_long", "llama", SMALL | {"intermediate_size": 32}, tokens=700, rows=8, pattern_rows=3),
]

QWEN3 = [
    Case("qwen3", "qwen3", SMALL | {"head_dim": 16} | default_rope(1000000), tokens=129, spellings=OLD),
]

SMOLLM3 = [
    Case("smollm3_list", "smollm3", SMALL | {"num_hidden_layers": 4, "no_rope_layers": [1, 0, 0, 1]}
         | default_rope(5000000.0), rows=6, published=sp.chain(sp.old_rope(), sp.without("tie_word_embeddings"))),
    Case("smollm3_interval", "smollm3", SMALL | {"num_hidden_layers": 4, "no_rope_layer_interval": 2}
         | default_rope(2000000.0), rows=6, published=sp.with_values(no_rope_layers=None)),
]

CASES = LLAMA + QWEN3 + SMOLLM3
