"""Progress of long calls: a bar of tqdm where that is installed. By default in notebooks alone."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, Union

from . import _engine, _options

_DELAY = 1  # seconds after which a bar is worth its place

Show = Union[bool, None]  # True: show it; None: in notebooks
Progress = Union[bool, Callable[[Any], Any], None]  # or a function that is told


@_options.checked
def show_progress(on: bool = True) -> None:
    """Whether long operations show their progress on standard error."""
    _engine.show_progress(_options.flag("on", on))


class Bar:
    """with Bar(120, "patches") as bar: bar.to(3)"""

    def __init__(self, total: int, what: str, show: Show = None):
        self._bar = _tqdm(total, what) if _shown(show) else None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()

    def to(self, done: int, total: int = 0) -> None:
        """So many are done, of `total` where that has become known."""
        if self._bar is None:
            return
        if total and self._bar.total != total:
            self._bar.total = total
        self._bar.update(done - self._bar.n)


class Told:
    """with Told(progress, "documents") as tell: run(tell): calls the user's function, or moves a bar."""

    def __init__(self, progress: Progress, what: str):
        self._call = progress if callable(progress) else None
        self._bar = Bar(0, what, False if callable(progress) else progress)

    def __enter__(self) -> Callable[[Any], None]:
        return self._tell

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.__exit__(kind, error, trace)

    def _tell(self, done: Any) -> None:
        """done: what the engine gives, with `examples` and `total`."""
        if self._call is not None:
            self._call(done)
        self._bar.to(done.examples, done.total)


def _shown(show: Show) -> bool:
    if show is not None:
        return _options.flag("progress", show)
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")


def _tqdm(total: int, what: str) -> Any:
    try:
        with warnings.catch_warnings():  # without ipywidgets the bar is a line of text
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total or None, desc=what, delay=_DELAY, leave=False)
