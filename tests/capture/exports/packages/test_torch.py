"""Loads the triattention export with torch.load and its default weights_only."""
import json

import numpy as np
import torch
from safetensors.numpy import load_file


def merged(tensors, field):
    """Returns a mean over the row sets first and body."""
    rows = [int(tensors[f"positions.{part}.n"][0]) for part in ("first", "body")]
    parts = [tensors[f"q.pre.{part}.{field}"] for part in ("first", "body")]
    return (parts[0] * rows[0] + parts[1] * rows[1]) / sum(rows)


def test_triattention(export, statistics):
    file = export("triattention", name="stats.pt")
    loaded = torch.load(file)
    tensors = load_file(statistics / "stats.safetensors")
    mean, length = merged(tensors, "mean"), merged(tensors, "pair_abs")
    assert loaded["metadata"]["sampled_heads"] == [[layer, head] for layer in range(3) for head in range(4)]
    assert loaded["metadata"]["head_dim"] == 16 and loaded["metadata"]["rope_style"] == "half"
    assert len(loaded["metadata"]["inv_freq"]) == 8
    for layer in range(3):
        for head in range(4):
            found = loaded["stats"][f"layer{layer:02}_head{head:02}"]
            for name, expected in (("q_mean_real", mean[layer, head, :8]), ("q_mean_imag", mean[layer, head, 8:]),
                                   ("q_abs_mean", length[layer, head])):
                assert found[name].dtype == torch.float32
                np.testing.assert_allclose(found[name].numpy(), expected, rtol=1e-6, atol=1e-9)


def test_retrieval_and_duo_are_plain_files(export):
    duo = export("duo")
    rows = np.loadtxt(duo / "full_attention_heads.tsv", delimiter="\t")
    assert rows.shape == (3, 2) and (rows >= 0).all() and (rows <= 1).all()
    assert json.loads((duo / "config.json").read_text()) == {"sink_size": 128, "recent_size": 256}
