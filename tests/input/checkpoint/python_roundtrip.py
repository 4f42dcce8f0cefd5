"""Reads FOLDER/ours.safetensors with the safetensors package, checks it, writes theirs.safetensors."""
import sys

import numpy
import safetensors
import safetensors.numpy

folder = sys.argv[1]
ours = f"{folder}/ours.safetensors"


def counting(size):
    """Expected bytes of each tensor."""
    return (numpy.arange(size) * 7 + 1).astype(numpy.uint8).tobytes()


expected = {"z": ("BF16", [3, 5], 30), "a": ("F32", [4], 16), "e": ("F8_E4M3", [7], 7), "i": ("I64", [], 8)}

with safetensors.safe_open(ours, framework="numpy") as file:
    assert set(file.keys()) == set(expected), file.keys()
    assert file.metadata() == {"made by": "qkscope"}, file.metadata()
    for name, (dtype, shape, _) in expected.items():
        tensor = file.get_slice(name)
        assert tensor.get_dtype() == dtype, (name, tensor.get_dtype())
        assert tensor.get_shape() == shape, (name, tensor.get_shape())
    assert file.get_tensor("a").tobytes() == counting(16)

with open(ours, "rb") as file:
    found = dict(safetensors.deserialize(file.read()))
for name, (dtype, shape, size) in expected.items():
    assert bytes(found[name]["data"]) == counting(size), name

# Only dtypes that NumPy supports.
theirs = {
    "a": numpy.frombuffer(counting(16), numpy.float32),
    "i": numpy.frombuffer(counting(8), numpy.int64).reshape(()),
    "h": numpy.frombuffer(counting(12), numpy.float16).reshape(2, 3),
}
safetensors.numpy.save_file(theirs, f"{folder}/theirs.safetensors", metadata={"made by": "Python"})
