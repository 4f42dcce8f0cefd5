# nbformat has no types.
from os import PathLike
from typing import Any

def read(fp: str | PathLike[str], as_version: int) -> Any: ...
