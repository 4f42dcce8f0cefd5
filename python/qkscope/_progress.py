"""Progress bars of long calls, drawn by tqdm if it is installed. By default only in notebooks."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, Union

from . import _engine, _options

_DELAY = 1  # seconds before a bar appears

Show = Union[bool, None]  # True: show a bar; None: only in notebooks
Progress = Union[bool, Callable[[Any], Any], None]  # or a function that is called with the progress


@_options.checked
def show_progress(on: bool = True) -> None:
    """Turns the progress lines of long operations on standard error on or off."""
    _engine.show_progress(_options.flag("on", on))


class Bar:
    """A progress bar: with Bar(120, "patches") as bar: bar.to(3)"""

    def __init__(self, total: int, what: str, show: Show = None):
        self._bar = _tqdm(total, what) if _shown(show) else None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()

    def to(self, done: int, total: int = 0) -> None:
        """Moves the bar to `done` items; `total` sets the number of all items once it is known."""
        if self._bar is None:
            return
        if total and self._bar.total != total:
            self._bar.total = total
        self._bar.update(done - self._bar.n)


class Told:
    """Calls the user's progress function, or moves a bar: with Told(progress, "documents") as tell: run(tell)."""

    def __init__(self, progress: Progress, what: str):
        self._call = progress if callable(progress) else None
        self._bar = Bar(0, what, False if callable(progress) else progress)

    def __enter__(self) -> Callable[[Any], None]:
        return self._tell

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.__exit__(kind, error, trace)

    def _tell(self, done: Any) -> None:
        """done: a CaptureProgress or StatsProgress with `examples` and `total`."""
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
        with warnings.catch_warnings():  # tqdm warns if ipywidgets is missing, and draws a text bar
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total or None, desc=what, delay=_DELAY, leave=False)
