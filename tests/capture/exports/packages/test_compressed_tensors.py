"""Loads the fp8-kv export with transformers and compressed-tensors."""
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM


def ranges(statistics, kind):
    """Returns the largest absolute value of each head, shape (layers, heads)."""
    tensors = load_file(statistics / "stats.safetensors")
    stage = "pre" if kind == "v" else "post"
    low = [tensors[f"{kind}.{stage}.{part}.min"] for part in ("first", "body")]
    high = [tensors[f"{kind}.{stage}.{part}.max"] for part in ("first", "body")]
    return torch.from_numpy(max_of([-x for x in low] + high)).amax(-1)


def max_of(arrays):
    result = arrays[0]
    for array in arrays[1:]:
        result = result.clip(min=array)
    return result


@pytest.mark.parametrize("strategy", ["tensor", "attn_head"])
@pytest.mark.parametrize("queries", [False, True])
def test_every_scale_arrives(export, statistics, strategy, queries):
    options = ["--strategy", strategy] + (["--queries"] if queries else [])
    folder = export("fp8-kv", *options)
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"], report["missing_keys"]
    assert not report["unexpected_keys"], report["unexpected_keys"]
    for kind in "kvq" if queries else "kv":
        largest = ranges(statistics, kind)
        for layer, module in enumerate(model.model.layers):
            scale = getattr(module.self_attn, f"{kind}_scale")
            expected = largest[layer] if strategy == "attn_head" else largest[layer].max()[None]
            shape = (len(expected), 1, 1) if strategy == "attn_head" else (1,)
            assert scale.shape == shape
            assert torch.equal(scale.detach().float().flatten(), (expected.double() / 448).float())
            # The largest E4M3 value is 448; dequantized it equals the observed range.
            torch.testing.assert_close(scale.detach().float().flatten() * 448, expected, rtol=1e-6, atol=0)
    with torch.no_grad():
        assert torch.isfinite(model(torch.arange(3, 40)[None]).logits).all()
