from os import PathLike
from typing import Any

import numpy as np

def load_file(filename: str | PathLike[str]) -> dict[str, np.ndarray[Any, np.dtype[Any]]]: ...
