#!/usr/bin/env python3
"""Converts the matrices of a GGUF file to another type, to measure the same model in each type.

    python bench/make_gguf.py FROM.gguf TO.gguf --type F32|BF16|F16|Q8_0

Needs the gguf package. Metadata and vectors are copied unchanged.
"""

import argparse

import gguf
import numpy as np


def copy_metadata(reader, writer):
    own = ("GGUF.", "general.architecture", "general.file_type")
    for field in reader.fields.values():
        if field.name.startswith(own):
            continue
        kind, *inner = field.types
        writer.add_key_value(field.name, field.contents(), kind, *inner[:1])


def main():
    parser = argparse.ArgumentParser(description="Write a GGUF file with matrices of another type.")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--type", choices=["F32", "BF16", "F16", "Q8_0"], required=True)
    arguments = parser.parse_args()
    reader = gguf.GGUFReader(arguments.source)
    writer = gguf.GGUFWriter(arguments.target, reader.fields["general.architecture"].contents())
    copy_metadata(reader, writer)
    writer.add_file_type(gguf.LlamaFileType[f"{'ALL' if arguments.type == 'F32' else 'MOSTLY'}_{arguments.type}"])
    kind = gguf.GGMLQuantizationType[arguments.type]
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if values.ndim < 2 or kind == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(tensor.name, values)
        else:
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
