"""The viewer: the attention of a model over one text, in a notebook or a browser."""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _engine, _options
from ._engine import InputError
from .heads import text_ids

if TYPE_CHECKING:
    from .model import Model

# Origins that may embed the viewer in a frame: local notebooks, notebook servers with TLS, and VS Code.
_NOTEBOOKS = "http://localhost:* http://127.0.0.1:* https: vscode-webview:"
_BUDGET = 30_000_000


class View:
    """A running viewer. A notebook shows its page in the cell; `url` opens it in a browser of the same machine."""

    def __init__(self, viewer: _engine.Viewer, inline: bool, height: int):
        self._viewer = viewer
        self._height = height
        self.url = "" if inline else viewer.serve(_NOTEBOOKS)

    def __repr__(self) -> str:
        return f"View({self.url or 'inline'!r})"

    def _repr_html_(self) -> str:
        frame = f'style="width: 100%; height: {self._height}px; border: 1px solid #ccc"'
        if self.url:
            return f'<iframe src="{self.url}" {frame}></iframe>'
        page = html.escape(self._viewer.export_page([], _BUDGET), quote=True)
        return f'<iframe sandbox="allow-scripts allow-downloads" srcdoc="{page}" {frame}></iframe>'

    def stop(self) -> None:
        """Ends the server; a page in a cell no longer answers."""
        self._viewer.stop()
        self.url = ""

    @_options.checked
    def save(self, path: Any, *, queries: Iterable[int] = (), budget: int = _BUDGET) -> Path:
        """Writes the page as one HTML file of at most `budget` bytes, with the first heads and rows of these queries.

        Without queries, evenly spaced ones are stored.
        """
        file = Path(_options.path("path", path))
        chosen = sorted({_options.whole("queries", query, 0, (1 << 31) - 1) for query in queries})
        page = self._viewer.export_page(chosen, _options.whole("budget", budget, 1, 1 << 40))
        file.write_text(page, encoding="utf-8")
        return file


@_options.checked
def view(
    model: Model,
    text: Any,
    *,
    checkpoints: Iterable[Model] = (),
    heads: _options.Heads = (),
    query: int = -1,
    results: Any = None,
    memory: int = 0,
    inline: bool = False,
    height: int = 760,
    prepend_bos: bool | None = None,
) -> View:
    """Runs a text once and shows the attention of every head (docs/how-to/viewer.md).

    text: one text, or token ids [pos]. checkpoints: further models of the same shape over the same text. heads: up to
    four (layer, head) to show first. query: the token to show first; -1: the last one. results: folder of
    `qkscope analyze`, whose columns colour the map of heads. memory: bytes of host memory for queries and keys (0:
    three quarters of the free memory); layers that do not fit are recomputed.

    The page comes from a server of this process, which only this machine can reach. inline=True embeds the page in the
    notebook instead, with the first heads alone; use it where the notebook runs on another machine.
    """
    texts = text_ids(model, text, _options.flag_or_none("prepend_bos", prepend_bos))
    if len(texts) != 1:
        raise InputError(f"text: found {len(texts)} texts, expected one")
    models = [model, *checkpoints]
    for one in models:
        _options.check_model(one)
    viewer = _engine.Viewer(
        texts[0].tolist(), "", _options.path("results", results or ""), _options.heads("heads", heads),
        _options.whole("query", query, -1, 1 << 31), _options.whole("memory", memory, 0, 1 << 50), len(models))
    for one in models:
        viewer.add_run(Path(one.folder).name, one._engine)
    return View(viewer, _options.flag("inline", inline), _options.whole("height", height, 100, 10_000))
