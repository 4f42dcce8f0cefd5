"""Makes tiny random checkpoints and writes them as ordinary Hugging Face folders."""

import copy
import json
import shutil
from collections import OrderedDict
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers.integrations import mxfp4

SURPLUS_FILES = ["generation_config.json"]
ATTENTION_INPUTS = ("q_proj", "k_proj", "qkv_proj", "query_key_value", "c_attn")
WITH_EXPERTS = ("qwen3_moe", "mixtral", "gpt_oss", "olmoe", "glm4_moe", "ernie4_5_moe", "minimax_m2", "afmoe",
                "deepseek_v2", "deepseek_v3", "qwen3_next", "granitemoehybrid", "nemotron_h",
                "kimi_linear")  # llama4 has only one implementation
ROUTERS = ("mlp.gate.weight", "mlp.router.weight", "mlp.router.gate.weight", "feed_forward.router.weight",
           "block_sparse_moe.router.weight", "mixer.gate.weight")
SELECTION_BIASES = ("e_score_correction_bias", "expert_bias")
RANDOM_BUFFERS = (*SELECTION_BIASES, "layer_scalar")
CONV1D = "transformer.h."  # GPT-2's layers store (in, out)


def model_class(model_type):
    if model_type == "mllama_text_model":
        return transformers.MllamaForCausalLM
    if model_type in ("mistral3", "mllama", "gemma3", "gemma4", "llama4", "qwen3_5"):
        return transformers.AutoModelForImageTextToText
    return transformers.AutoModelForCausalLM


def make_config(model_type, values):
    values = copy.deepcopy(values)  # transformers modifies the dictionaries it is given
    if model_type == "mllama_text_model":
        return transformers.models.mllama.MllamaTextConfig(**values)
    return transformers.AutoConfig.for_model(model_type, **values)


def make_model(model_type, values, seed):
    """Returns a model whose parameters are all random and large enough to affect the results."""
    cls = model_class(model_type)
    config = make_config(model_type, values)
    model = cls._from_config(config) if hasattr(cls, "_from_config") else cls.from_config(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        buffers = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith(RANDOM_BUFFERS)]
        for name, parameter in sorted([*model.named_parameters(), *buffers]):
            parameter.copy_(random_values(name, parameter, model_type, generator))
    return model.eval()


def random_values(name, parameter, model_type, generator):
    norms_add_one = any(part in model_type for part in ("gemma2", "gemma3", "qwen3_next", "qwen3_5"))
    experts_by_input = model_type in ("gpt_oss", "llama4", "llama4_text") and ".experts." in name  # (experts, in, out)
    noise = torch.randn(parameter.shape, generator=generator)
    if name.endswith("linear_attn.norm.weight"):  # a gated norm, which does not add one
        return 1.0 + 0.3 * noise
    if name.endswith("A_log"):  # memories of a few tokens up to several chunks of 64 tokens
        return 1.5 * noise - 3.0
    if is_norm(name) and name.endswith("weight"):
        gain = 1.8 if norms_add_one and name.endswith(("q_norm.weight", "k_norm.weight")) else 1.0
        return gain + 0.3 * noise - (1.0 if norms_add_one else 0.0)
    if name.endswith("sinks"):
        return noise
    if name.endswith("layer_scalar"):
        return 0.8 + 0.1 * noise
    if name.endswith(SELECTION_BIASES):
        return 0.1 * noise
    if parameter.dim() < 2 or name.endswith("bias"):
        return 0.3 * noise
    if "lm_head" in name or "embed_out" in name:
        return 3.0 * noise / parameter.shape[-1] ** 0.5
    if "embed" in name or name.endswith(("wte.weight", "wpe.weight")):
        return 0.5 * noise
    gain = 2.0 if name.endswith(ROUTERS) else 1.3 if any(part in name for part in ATTENTION_INPUTS) else 1.0
    inputs = parameter.shape[0 if name.startswith(CONV1D) else -2 if experts_by_input else -1]
    return gain * noise / inputs**0.5


def is_norm(name):
    return "norm" in name or ".ln_" in name


def save(model, folder, dtype, shard_size=None, published_names=True):
    """Writes config.json and the weights in the given dtype, as save_pretrained does."""
    shutil.rmtree(folder, ignore_errors=True)
    options = {"max_shard_size": shard_size} if shard_size else {}
    options |= {} if published_names else {"save_original_format": False}
    model.to(getattr(torch, dtype)).save_pretrained(folder, **options)
    for name in SURPLUS_FILES:
        (Path(folder) / name).unlink(missing_ok=True)


def load(folder, model_type, dtype=torch.float32):
    """Loads the checkpoint with its values widened to `dtype` and eager attention."""
    options = {"experts_implementation": "eager"} if model_type in WITH_EXPERTS else {}
    model, report = model_class(model_type).from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", output_loading_info=True, **options)
    problems = {what: names for what, names in report.items() if names}
    if problems:
        raise AssertionError(f"transformers does not load {folder} whole: {problems}")
    return model.eval()


def read_config(folder):
    return json.loads((Path(folder) / "config.json").read_text())


def write_config(path, config):
    Path(path).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def edit_tensors(folder, edit):
    """Replaces the tensors of folder/model.safetensors by edit(tensors), which may also change the metadata."""
    path = Path(folder) / "model.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    save_file(edit(tensors, metadata), path, metadata)


def rename_tensors(rename):
    return lambda folder: edit_tensors(folder, lambda tensors, _: {rename(n): t for n, t in tensors.items()})


def add_redundant_head(folder):
    """Adds a copy of the tied embedding under the output's name, as in some published files."""

    def edit(tensors, _):
        return tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}

    edit_tensors(folder, edit)


def alias_head(folder):
    """Stores the output embedding as a metadata entry that names the shared tensor."""

    def edit(tensors, metadata):
        metadata["lm_head.weight"] = "model.embed_tokens.weight"
        return tensors

    edit_tensors(folder, edit)


def as_torch_files(shards):
    """Stores the weights with torch.save: as pytorch_model.bin, or as `shards` shards with an index."""

    def convert(folder):
        folder = Path(folder)
        tensors = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        if shards == 1:
            torch.save(tensors, folder / "pytorch_model.bin")
            return
        names = sorted(tensors)
        index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": {}}
        for number in range(shards):
            file = f"pytorch_model-{number + 1:05}-of-{shards:05}.bin"
            part = names[number::shards]
            torch.save(OrderedDict((name, torch.nn.Parameter(tensors[name])) for name in part), folder / file)
            index["weight_map"].update({name: file for name in part})
        write_config(folder / "pytorch_model.bin.index.json", index)

    return convert


def add_buffers(make):
    """Adds buffers that early versions of transformers stored with the weights; make(tensors) returns them by name."""
    return lambda folder: edit_tensors(folder, lambda tensors, _: tensors | make(tensors))


def add_shared_keys(*layers):
    """Gemma 4: adds the unused matrices of keys and values that published files store for layers with shared keys."""
    return add_buffers(lambda tensors: {
        f"model.layers.{layer}.self_attn.{name}.weight": torch.ones(2, 3, dtype=torch.bfloat16)
        for layer in layers for name in ("k_proj", "v_proj", "k_norm")})


# ---- FP8 with one scale per tensor

FP8_CONFIG = {
    "activation_scheme": "static",
    "dequantize": False,
    "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "lm_head"],
    "quant_method": "fp8",
    "weight_block_size": None,
}


def is_quantized(name):
    return "language_model" in name and "_proj.weight" in name and "vision" not in name


def quantize_fp8(folder):
    """Quantises projections to E4M3 with `weight_scale_inv`, the factor of dequantisation, and an activation scale."""

    def edit(tensors, _):
        result = {}
        for name, tensor in tensors.items():
            if not is_quantized(name):
                result[name] = tensor
                continue
            scale = (tensor.float().abs().max() / torch.finfo(torch.float8_e4m3fn).max).bfloat16()
            result[name] = (tensor.float() / scale.float()).to(torch.float8_e4m3fn)
            result[name + "_scale_inv"] = scale
            result[name.removesuffix("weight") + "activation_scale"] = torch.tensor(0.0123, dtype=torch.bfloat16)
        return result

    edit_tensors(folder, edit)
    config = read_config(folder)
    write_config(Path(folder) / "config.json", config | {"quantization_config": FP8_CONFIG})


def quantize_fp8_blocks(rows, columns):
    """Quantises projections to E4M3 as DeepSeek and Qwen do: `weight_scale_inv` has one factor per block of
    (rows, columns), with smaller blocks at the edges."""

    def quantize(folder):
        def edit(tensors, _):
            result = {}
            for name, tensor in tensors.items():
                if not name.endswith("_proj.weight"):
                    result[name] = tensor
                    continue
                scales = torch.stack([
                    torch.stack([part.float().abs().max() / torch.finfo(torch.float8_e4m3fn).max
                                 for part in band.split(columns, dim=1)]) for band in tensor.split(rows)]).bfloat16()
                result[name] = (tensor.float() / spread(scales, tensor, (rows, columns))).to(torch.float8_e4m3fn)
                result[name + "_scale_inv"] = scales
            return result

        edit_tensors(folder, edit)
        config = read_config(folder)
        quantization = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                        "weight_block_size": [rows, columns]}
        write_config(Path(folder) / "config.json", config | {"quantization_config": quantization})

    return quantize


def spread(scales, tensor, block):
    """Expands one scale, or one scale per block, to every element."""
    if block is None:
        return scales.float()
    whole = scales.float().repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return whole[:tensor.shape[0], :tensor.shape[1]]


# ---- MXFP4: blocks of 32 numbers of four bits (E2M1) with a power of two (E8M0)

MXFP4_CONFIG = {
    "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                               "lm_head"],
    "quant_method": "mxfp4",
}
FP4_VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def quantize_mxfp4(folder):
    """Quantises experts as in gpt-oss: NAME_blocks (experts, out, in / 32, 16), NAME_scales (experts, out, in / 32)."""

    def edit(tensors, _):
        result = {}
        for name, tensor in tensors.items():
            if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
                result[name] = tensor
                continue
            blocks = tensor.float().transpose(1, 2).unflatten(-1, (-1, 32))  # (experts, out, in / 32, 32)
            exponent = blocks.abs().amax(-1, keepdim=True).clamp_min(1e-30).log2().floor() - 2
            scaled = blocks / 2.0**exponent
            number = (scaled.abs()[..., None] - FP4_VALUES).abs().argmin(-1) + 8 * (scaled < 0)
            result[name + "_blocks"] = (number[..., 0::2] + 16 * number[..., 1::2]).to(torch.uint8)
            result[name + "_scales"] = (exponent[..., 0] + 127).to(torch.uint8)
        return result

    edit_tensors(folder, edit)
    write_config(Path(folder) / "config.json", read_config(folder) | {"quantization_config": MXFP4_CONFIG})


def dequantized_copy(folder, target):
    """Writes the float32 checkpoint that a quantised one represents."""
    block = read_config(folder)["quantization_config"].get("weight_block_size")

    def edit(tensors, _):
        blocks = {name.removesuffix("_blocks") for name in tensors if name.endswith("_blocks")}
        experts = {name: mxfp4.convert_moe_packed_tensors(tensors.pop(name + "_blocks"), tensors.pop(name + "_scales"))
                   for name in blocks}  # (experts, in, out)
        return widened(tensors) | {name: tensor.float().contiguous() for name, tensor in experts.items()}

    def widened(tensors):
        result = {}
        for name, tensor in tensors.items():
            if name.endswith(("_scale_inv", "activation_scale")):
                continue
            scale = tensors.get(name + "_scale_inv")
            result[name] = tensor.float() if scale is None else tensor.float() * spread(scale, tensor, block)
        return result

    shutil.copytree(folder, target)
    edit_tensors(target, edit)
    config = read_config(target)
    config.pop("quantization_config")
    write_config(Path(target) / "config.json", config)
