"""The modules of the package import each other without cycles."""

import ast
from pathlib import Path

import qkscope

PACKAGE = Path(qkscope.__file__).parent


def imported_modules(path: Path) -> set[str]:
    """Modules of the package that a file imports, also inside functions and for type checkers alone."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
    return {name for name in names if (PACKAGE / f"{name}.py").exists()}


def test_imports_are_acyclic() -> None:
    waiting = {path.stem: imported_modules(path) for path in PACKAGE.glob("*.py")}
    assert len(waiting) > 20
    while free := [name for name, needs in waiting.items() if not needs & set(waiting)]:
        for name in free:
            del waiting[name]
    assert not waiting, f"these modules import each other: {waiting}"
