"""What the attention heads of language models do with position.

    import qkscope

    model = qkscope.load("share/demo/checkpoints/S3-4720")
    logits, cache = model.run_with_cache("The sea was calm.")
    cache["blocks.0.attn.hook_rot_q"]  # [pos, head, d_head]
    cache["rot_q", 0]                  # the same
    cache.show_attention(0)            # a picture in a notebook

Arrays are float32: NumPy on the CPU, torch tensors on a GPU or with load(arrays="torch"). docs/reference/hooks.md lists
the hook points and their shapes, docs/reference/python.md describes this package, and
docs/start/coming-from-transformerlens.md the differences from TransformerLens.
"""

import logging
import ssl  # noqa: F401  loads OpenSSL before pyarrow's libparquet, which exports conflicting symbols

import pyarrow  # noqa: F401  loads libarrow, which the engine links to

from . import _engine, _looks, _transformers, patching, plot, utils
from ._arrays import Array
from ._audit import Audit, audit
from ._cache import ActivationCache, get_act_name
from ._circuits import SVDInterpreter
from ._engine import (
    CaptureProgress, CaptureResult, Config, DeviceArray, Drawn, Error, InputError, PublishResult, Rope, ScorePair,
    StatsProgress, StatsResult, __version__, threads,
)
from ._factored import FactoredMatrix
from ._hooks import HookPoint
from ._progress import show_progress
from ._runs import analyze, capture, demo_folder, figures, merge, report, stats
from ._statistics import Statistics, open_stats
from ._studies import SweepResult, compare, export, publish, sweep
from ._transformers import TransformersEngine
from ._view import View, view
from ._writers import CaptureWriter, StatsWriter
from .ablation import ablate
from .attribution import direct_logit_attribution, logit_lens
from .heads import detect_head, heads
from .hooked_transformer import HookedTransformer, TransformerBridge
from .model import Model, load, set_threads
from .path_patching import path_patch
from .score_attribution import Composition, ScoreAttribution, attribute_scores, composition

__all__ = [
    "ActivationCache", "Array", "Audit", "CaptureProgress", "CaptureResult", "CaptureWriter", "Composition", "Config",
    "DeviceArray", "Drawn", "Error", "FactoredMatrix", "HookPoint", "HookedTransformer", "InputError", "Model",
    "PublishResult", "Rope", "SVDInterpreter", "ScoreAttribution", "ScorePair", "Statistics", "StatsProgress",
    "StatsResult", "StatsWriter", "SweepResult", "TransformerBridge", "TransformersEngine", "View", "__version__",
    "ablate", "analyze", "attribute_scores", "audit", "capture", "compare", "composition", "demo_folder",
    "detect_head", "direct_logit_attribution", "export", "figures", "get_act_name", "heads", "load", "logit_lens",
    "merge", "open_stats", "patching", "path_patch", "plot", "publish", "report", "set_threads", "show_progress",
    "stats", "sweep", "threads", "utils", "view",
]

logging.getLogger("qkscope").addHandler(logging.NullHandler())  # no output unless the program configures logging
_looks.install()
_engine.register_engine("transformers", _transformers.load_engine)
