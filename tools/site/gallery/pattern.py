"""Writes pattern.txt: a 1 where a query should attend to the key two tokens before."""

import numpy as np

import qkscope

model = qkscope.load("share/demo/checkpoints/LC2-1200", device="cpu")
tokens = model.to_tokens("Entry 1, day 5. A letter came for Orn: the road by the river is closed.")
np.savetxt("pattern.txt", np.eye(len(tokens), k=-2), fmt="%g")
