"""Imports the program that an emitter has written, from a file, so that tracebacks and compilers see its source."""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType


def import_program(text: str, folder: Path | None) -> ModuleType:
    """Write the program into the folder, or into a temporary one, and run it as a new module.

    Workers of a study share the folder: the name of the file is that of its text. The module counts as polybench's own
    code, so `protocol.loaded_code` has no path of a temporary file.
    """
    file_name = f"program_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    path, name = (folder or _temporary_folder()) / f"{file_name}.py", f"polybench.{file_name}"
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False, encoding="utf-8") as file:
            file.write(text)
        Path(file.name).replace(path)  # at once, since another worker may import it
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


@cache
def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="polybench-program-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
