#!/usr/bin/env python3
"""Generates with llama.cpp on the CPU: the peer of `qkscope generate` on the same GGUF file.

    python bench/llama_cpp_peer.py FILE.gguf [--prompt 32] [--new 128] [--threads N] [--runs 3]

Needs xllamacpp from PyPI, which includes llama.cpp. Greedy, one text; the seconds are llama.cpp's own, without the prompt.
Prints one JSON line: tokens per second, and processor milliseconds per token from two texts of different length.
"""

import argparse
import json
import os
import time

import xllamacpp


def start_server(arguments):
    params = xllamacpp.CommonParams()
    params.model.path = str(arguments.file)
    params.n_ctx = 2 * (arguments.prompt + arguments.new)
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = arguments.threads
    params.cache_prompt = False
    params.verbosity = 0
    return xllamacpp.Server(params)


def generate(server, prompt, count):
    """Returns llama.cpp's own timings and the processor seconds of the call."""
    begin = time.process_time()
    answer = server.handle_completions({
        "prompt": prompt, "n_predict": count, "temperature": 0, "ignore_eos": True, "cache_prompt": False})
    if isinstance(answer, (str, bytes)):
        answer = json.loads(answer)
    if answer.get("timings", {}).get("predicted_n") != count:
        raise SystemExit(f"error: llama.cpp answered {answer}")
    return answer["timings"], time.process_time() - begin


def main():
    parser = argparse.ArgumentParser(description="Time generation in llama.cpp on the CPU.")
    parser.add_argument("file")
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    server = start_server(arguments)
    prompt = list(range(10, 10 + arguments.prompt))
    _, short = generate(server, prompt, 1)
    rates, processor = [], []
    for _ in range(arguments.runs):
        timings, spent = generate(server, prompt, arguments.new + 1)
        rates.append(timings["predicted_per_second"])
        processor.append((spent - short) / arguments.new * 1e3)
    print(json.dumps({"peer": "llama.cpp", "tokens_per_s": max(rates), "processor_ms": min(processor),
                      "xllamacpp": xllamacpp.__version__}), flush=True)
    os._exit(0)  # the threads of the server never end


if __name__ == "__main__":
    main()
