"""Reads a file for torch.load with the standard library alone and compares it with expected numbers.

    python read_pt.py FILE.pt EXPECTED.json

It allows what torch.load allows with weights_only, and nothing else.
"""

import json
import math
import pickle
import struct
import sys
import zipfile
from collections import OrderedDict


def check(condition, what):
    if not condition:
        sys.exit(f"{sys.argv[1]}: {what}")


def rebuild(storage, offset, size, stride, requires_grad, hooks):
    check((offset, stride, requires_grad) == (0, (1,), False), f"a tensor at {offset} with strides {stride}")
    check(size == (len(storage),) and hooks == OrderedDict(), f"a tensor of shape {size} over {len(storage)} numbers")
    return list(storage)


class Reader(pickle.Unpickler):
    allowed = {
        ("torch._utils", "_rebuild_tensor_v2"): rebuild,
        ("torch", "FloatStorage"): "float32",
        ("collections", "OrderedDict"): OrderedDict,
    }

    def __init__(self, archive, folder):
        super().__init__(archive.open(f"{folder}/data.pkl"))
        self.archive, self.folder = archive, folder

    def find_class(self, module, name):
        check((module, name) in self.allowed, f"{module}.{name} is not allowed with weights_only")
        return self.allowed[module, name]

    def persistent_load(self, identity):
        kind, dtype, key, device, count = identity
        check((kind, dtype, device) == ("storage", "float32", "cpu"), f"storage {identity}")
        data = self.archive.read(f"{self.folder}/data/{key}")
        check(len(data) == 4 * count, f"data/{key} has {len(data)} bytes")
        return struct.unpack(f"<{count}f", data)


with zipfile.ZipFile(sys.argv[1]) as archive:
    check(archive.testzip() is None, "a checksum is wrong")
    folder = archive.namelist()[0].split("/")[0]
    for info in archive.infolist():
        check(info.compress_type == zipfile.ZIP_STORED, f"{info.filename} is compressed")
        with open(sys.argv[1], "rb") as file:
            file.seek(info.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))
        check((info.header_offset + 30 + name + extra) % 64 == 0, f"{info.filename} is not aligned")
    check(archive.read(f"{folder}/byteorder") == b"little", "byteorder")
    check(archive.read(f"{folder}/version").strip() == b"3", "version")
    found = Reader(archive, folder).load()

metadata = found["metadata"]
for key, value in {
    "head_dim": 8,
    "rope_style": "half",
    "num_traces": 3,
    "rope_theta": 10000.0,
    "inv_freq": [1.0, 0.1, 0.01, 0.001],
    "num_attention_heads": 4,
    "num_kv_heads": 2,
    "num_layers": 3,
    "model_name": "planted/model",
    "use_chat_template": False,
}.items():
    check(metadata[key] == value, f"{key} is {metadata[key]}, expected {value}")
expected = json.load(open(sys.argv[2]))
check(metadata["sampled_heads"] == [[layer, head] for layer in (0, 2) for head in range(4)], "sampled_heads")
check(list(found["stats"]) == list(expected), f"heads {list(found['stats'])}")
for head, tensors in expected.items():
    for name, values in tensors.items():
        for a, b in zip(found["stats"][head][name], values, strict=True):
            # One rounding to float32.
            check(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-7), f"{head} {name}: {a}, expected {b}")
