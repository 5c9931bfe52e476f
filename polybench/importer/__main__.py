"""The process that runs the user's file: it translates the model, proves the network, and writes both.

Started by `importer.run_import` with a request as JSON; everything that the file prints goes to the log.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from polybench.errors import BadInput, EngineUnavailable
from polybench.importer import ERROR, LOADED, RESULT, UNAVAILABLE, WEIGHTS, ImportRequest, translate_model
from polybench.importer.errors import as_bad_input, with_interrupts
from polybench.worker.__main__ import die_with_parent


def main(request: ImportRequest) -> None:
    """Write the document and the weights into the request's folder, or the error."""
    folder, file, name = Path(request.folder), Path(request.file), request.name
    try:
        with with_interrupts(file, name):
            model = _load(file, name)
            (folder / LOADED).touch()
            document, weights = translate_model(model, request.input_shape, folder, file, name)
    except BadInput as error:
        (folder / ERROR).write_text(str(error), "utf-8")
        return
    except EngineUnavailable as error:
        (folder / UNAVAILABLE).write_bytes(msgspec.json.encode([error.reason, error.hint]))
        return
    arrays: dict[str, Any] = dict(weights)
    np.savez(folder / WEIGHTS, **arrays)
    (folder / RESULT).write_bytes(msgspec.json.encode(document))


def _load(file: Path, name: str) -> Any:
    """Run the user's file; return the model of this name, or the result of calling it without arguments."""
    if file.suffix == ".jl":
        from polybench.importer.flux_graph import FluxModel

        return FluxModel(file, name)
    sys.path.insert(0, str(file.parent))
    specification = importlib.util.spec_from_file_location(file.stem, file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[file.stem] = module
    with as_bad_input(file, name):
        specification.loader.exec_module(module)
        if not hasattr(module, name):
            names = [
                one for one, value in vars(module).items() if inspect.isclass(value) and value.__module__ == file.stem
            ]
            raise BadInput(
                f"{file.name}: no {name}: expected a model, a class or a function; classes are {', '.join(names)}"
            )
        model = getattr(module, name)
        return model() if inspect.isclass(model) or inspect.isfunction(model) else model


if __name__ == "__main__":
    die_with_parent()
    main(msgspec.json.decode(sys.argv[1], type=ImportRequest))
