"""Runs the forward pass of a checkpoint in transformers and copies sampled q and k rows to the host: the peer on a GPU.

The backbone runs without the output embedding and without a KV cache; attention is sdpa, which uses PyTorch's fastest
kernel. Rows are sampled by the rule of a capture before the clock starts; an attention function around sdpa gathers them
after RoPE and starts their copy to pinned memory, so that sampling costs the peer almost nothing. With kernel="ours",
attention is our kernel for Hopper, the fastest that a user can give to transformers. Experts run through
torch._grouped_mm, the fastest implementation of transformers on a GPU.
"""

import sys
import time
from pathlib import Path

import torch
import transformers

import own_attention

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from make_sampling_golden import mask, sampling_seed  # noqa: E402

MIN_BUCKET_SIZE = 128
SDPA = transformers.AttentionInterface()["sdpa"]


def sampled_rows(document, layer, kind, length):
    """Returns the positions that a capture with the default sampler keeps of one document."""
    return mask("log_uniform", sampling_seed(document, layer, kind), length, MIN_BUCKET_SIZE, 1.0)


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


class Peer:
    def __init__(self, folder, device):
        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()
        self.device = device
        self.own = own_attention.load() if device == "cuda" else None
        self.kernel = "sdpa"
        before = self._memory()
        config = transformers.AutoConfig.from_pretrained(folder)
        options = {"experts_implementation": "grouped_mm"} if hasattr(config, "num_experts_per_tok") else {}
        self.model = transformers.AutoModel.from_pretrained(
            folder, dtype=torch.bfloat16, attn_implementation="sdpa", **options).eval().to(device)
        self.weight_bytes = self._memory() - before
        self.rows = {}  # (layer, kind) → (documents, positions), each (rows) on the device
        self.kept = []  # copies on the host
        transformers.AttentionInterface.register("sdpa", self._sampled_attention)

    def close(self):
        """Frees the GPU memory."""
        transformers.AttentionInterface.register("sdpa", SDPA)
        self.model = None
        self.rows.clear()
        self._release()

    def _sampled_attention(self, module, query, key, value, *arguments, **options):
        for kind, states in (("q", query), ("k", key)):  # (batch, heads, tokens, head_dim)
            documents, positions = self.rows[module.layer_idx, kind]
            self.kept.append(states[documents, :, positions].to("cpu", non_blocking=True))
        if self.kernel == "sdpa":
            return SDPA(module, query, key, value, *arguments, **options)
        return self.own(query, key, value, options["scaling"]), None

    def _release(self):
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def _memory(self, peak=False):
        if self.device != "cuda":
            return 0
        return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()

    def _draw(self, documents, length):
        for layer in range(self.model.config.num_hidden_layers):
            for kind in "qk":
                pairs = [(d, row) for d in range(documents) for row in sampled_rows(d, layer, kind, length)]
                self.rows[layer, kind] = torch.tensor(pairs, dtype=torch.long, device=self.device).reshape(-1, 2).T

    def _pass(self, ids, size):
        """Returns the seconds of one pass over all documents, `size` at a time."""
        synchronize(self.device)
        start = time.perf_counter()
        for part in ids.split(size):
            self.kept.clear()
            self.model(input_ids=part, use_cache=False)
            synchronize(self.device)  # waits for the copies
        return time.perf_counter() - start

    def kernels(self):
        """Returns the available attention kernels."""
        heads_fit = getattr(self.model.config, "head_dim", None) == own_attention.HEAD_DIM
        return ["sdpa", "ours"] if self.own and heads_fit else ["sdpa"]

    @torch.inference_mode()
    def measure(self, documents, length, size, seconds, kernel="sdpa"):
        """Runs for about `seconds`, at least once after a warm-up; returns seconds of each pass and peak bytes."""
        self.kernel = kernel
        self._draw(size, length)
        generator = torch.Generator().manual_seed(length)
        ids = torch.randint(0, self.model.config.vocab_size, (documents, length), generator=generator).to(self.device)
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        end = time.perf_counter() + seconds
        self._pass(ids, size)
        runs = [self._pass(ids, size)]
        while time.perf_counter() + runs[-1] < end:
            runs.append(self._pass(ids, size))
        self.kept.clear()
        peak = self._memory(peak=True) - self.weight_bytes
        self._release()  # frees memory for the other engine on the same GPU
        return runs, peak
