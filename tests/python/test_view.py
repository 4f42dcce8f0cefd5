"""qkscope.view(): the page of the viewer in a notebook."""

import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import qkscope
from qkscope import Model

TEXT = "Entry 1, day 5. A letter came for Orn: the road by the river is closed."


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


def html_of_cell(view: Any) -> str:
    """What a notebook shows for the view."""
    return str(view._repr_html_())


def test_a_cell_shows_the_page_of_a_server(demo: Model) -> None:
    view = qkscope.view(demo, TEXT, heads=[(1, 0)], query=3)
    try:
        frame = html_of_cell(view)
        assert re.search(r'<iframe src="http://127\.0\.0\.1:\d+/[0-9a-f]{32}/"', frame)
        assert "viewer.js" in fetch(view.url)
        assert '"query":3' in fetch(view.url + "info")
        with urllib.request.urlopen(view.url, timeout=20) as answer:
            assert "frame-ancestors http://localhost:*" in answer.headers["Content-Security-Policy"]
    finally:
        url = view.url
        view.stop()
    with pytest.raises(urllib.error.URLError):
        fetch(url)


def test_a_page_is_saved_within_its_budget(demo: Model, tmp_path: Path) -> None:
    view = qkscope.view(demo, TEXT, inline=True)
    page = view.save(tmp_path / "page.html", queries=[2, 5], budget=1_000_000).read_text()
    assert len(page) <= 1_000_000
    assert '"queries":[2,5]' in page
    assert html_of_cell(view).startswith('<iframe sandbox="allow-scripts')


def test_wrong_arguments_are_named(demo: Model) -> None:
    with pytest.raises(qkscope.InputError, match="expected one"):
        qkscope.view(demo, [TEXT, TEXT])
    with pytest.raises(qkscope.InputError, match="heads 99.0"):
        qkscope.view(demo, TEXT, heads=[(99, 0)])
    with pytest.raises(qkscope.InputError, match="query 10000"):
        qkscope.view(demo, TEXT, query=10_000)
