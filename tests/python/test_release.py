"""The version and the release notes, as tools/release_info.py reads them."""

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_tool() -> Any:
    specification = importlib.util.spec_from_file_location("release_info", ROOT / "tools/release_info.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


release_info = load_tool()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that hold the version, without the rest of the repository."""
    for file in [*release_info.VERSIONS, "docs/start/upgrading.md"]:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def test_all_files_hold_the_same_version() -> None:
    import qkscope

    assert release_info.version() == qkscope.__version__


@pytest.mark.parametrize("file", list(release_info.VERSIONS))
def test_a_version_that_differs_is_an_error_that_names_the_file(copy: Path, file: str) -> None:
    text = (copy / file).read_text()
    (copy / file).write_text(text.replace(release_info.version(), "9.8.7", 1))
    with pytest.raises(release_info.Mistake, match=f"{file} 9.8.7"):
        release_info.version(copy)


def test_notes_hold_the_changes_of_this_version_alone() -> None:
    notes = release_info.notes()
    version = release_info.version()
    assert notes.startswith(f"# qkscope {version}\n")
    changelog = (ROOT / "CHANGELOG.md").read_text()
    sections = changelog.split("\n## ")
    changes = [line for line in notes.splitlines() if line.startswith("- ")]
    assert len(changes) == sum(line.startswith("- ") for line in sections[1].splitlines())
    assert "](docs/" not in notes  # links to files that readers of the notes do not have


def test_a_version_without_changes_is_an_error(copy: Path) -> None:
    text = (copy / "CHANGELOG.md").read_text()
    version = release_info.version()
    (copy / "CHANGELOG.md").write_text(f"# Changelog\n\n## {version}\n\n" + text[text.index("## 0.1.0") :])
    with pytest.raises(release_info.Mistake, match="is empty"):
        release_info.notes(copy)
