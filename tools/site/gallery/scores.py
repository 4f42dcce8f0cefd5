"""Writes scores.csv: the mean loss of each checkpoint on eight held-out texts."""

import json

import qkscope

with open("share/demo/corpus.jsonl") as lines:
    texts = [json.loads(next(lines))["text"] for _ in range(8)]
with open("scores.csv", "w") as out:
    print("benchmark,model,metric,value", file=out)
    for label in ("S1-1200", "S1-2400", "S1-3440", "S2-4200", "S3-4720", "LC1-1200", "LC2-1200"):
        model = qkscope.load(f"share/demo/checkpoints/{label}", device="cpu")
        losses = [float(model(model.to_tokens(text)[:256], return_type="loss")) for text in texts]
        print(f"held-out texts,{label},loss,{sum(losses) / len(losses):.4f}", file=out)
