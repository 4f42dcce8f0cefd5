"""Loads the expected-attention and q-filters exports with kvpress."""
import torch
from kvpress import ExpectedAttentionStatsPress, QFilterPress
from kvpress.presses.expected_attention_with_stats import ExpectedAttentionStats
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, DynamicCache

LENGTH = 96


def compressed_length(model, press):
    """Returns the number of keys kept in the first layer after a forward pass over LENGTH tokens."""
    cache = DynamicCache()
    tokens = torch.arange(3, 3 + LENGTH)[None]
    with torch.no_grad(), press(model):
        model(tokens, past_key_values=cache)
    return cache.get_seq_length()


def test_expected_attention(export, llama):
    folder = export("expected-attention")
    stats = ExpectedAttentionStats.from_pretrained(str(folder))
    tensors = load_file(folder / "model.safetensors")
    for name in ("query_mean", "query_cov"):
        assert getattr(stats, name).dtype == torch.float32
        assert torch.equal(getattr(stats, name).detach(), tensors[name])
    covariance = tensors["query_cov"]
    assert torch.equal(covariance, covariance.transpose(-1, -2))
    assert (torch.linalg.eigvalsh(covariance.double()) > -1e-6).all()
    model = AutoModelForCausalLM.from_pretrained(llama)
    press = ExpectedAttentionStatsPress(compression_ratio=0.5, stats_folder=str(folder))
    assert compressed_length(model, press) == LENGTH // 2


def test_q_filters(export, llama, monkeypatch):
    out = export("q-filters", "--kvpress-name", "tiny-llama")
    tensors = load_file(out / "nthngdy" / "tiny-llama_qfilt" / "model.safetensors")
    monkeypatch.chdir(out)
    model = AutoModelForCausalLM.from_pretrained(llama)
    model.config.name_or_path = "anyone/tiny-llama"
    press = QFilterPress(compression_ratio=0.25)
    assert compressed_length(model, press) == LENGTH * 3 // 4
    loaded = press.q_filters.detach() if torch.is_tensor(press.q_filters) else press.q_filters.q_filters.detach()
    assert torch.equal(loaded.float(), tensors["q_filters"])
