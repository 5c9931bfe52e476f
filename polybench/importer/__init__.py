"""Imports a user's model: its program becomes a network file with its weights, and training steps prove it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import inspect
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from polybench.errors import BadInput, ConfigurationFailed, EngineUnavailable
from polybench.networks.layers import Shape
from polybench.networks.model import Model
from polybench.networks.network_file import network_of, network_toml
from polybench.networks.toml_text import TomlText
from polybench.schema.imported import ImportDocument

if TYPE_CHECKING:
    from polybench.engines.base import Weights
    from polybench.importer.graph import Translation
    from polybench.importer.proof import Program

RESULT, WEIGHTS, ERROR, UNAVAILABLE, LOADED = (
    "document.json",
    "weights.npz",
    "error.txt",
    "unavailable.json",
    "loaded",
)
"""Files of the process that runs the user's file; it writes the last one, empty, when it has the model."""

_LOG_LINES = 5


class ImportRequest(msgspec.Struct, frozen=True):
    """The user's file, the model in it, and the folder for the result. Only Keras models have an input shape."""

    file: str
    name: str
    input_shape: Shape | None
    folder: str


def run_import(file: Path, name: str, input_shape: Shape | None, folder: Path, timeout: float) -> ImportDocument:
    """Run the user's file in a process of its own, and return the network; `folder` receives its WEIGHTS.

    Raises:
        BadInput: the file or the model cannot be imported.
        ConfigurationFailed: the process crashed, or did not end within `timeout` seconds.
        EngineUnavailable: it is a Julia file, and Flux is not installed.
    """
    if file.suffix == ".jl" and input_shape is None:
        raise _no_shape(name)
    request = ImportRequest(str(file.resolve()), name, input_shape, str(folder))
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, msgspec.json.encode(request).decode()],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "POLYBENCH_PARENT": str(os.getpid())},
        )  # fmt: skip
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ConfigurationFailed(f"{file.name} did not end within {timeout:g} s: use --timeout") from None
        finally:
            with contextlib.suppress(ProcessLookupError):  # and what the file has started
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if (folder / ERROR).exists():
            raise BadInput((folder / ERROR).read_text("utf-8"))
        if (folder / UNAVAILABLE).exists():
            raise EngineUnavailable(*msgspec.json.decode((folder / UNAVAILABLE).read_bytes()))
        if not (folder / RESULT).exists():
            log.seek(0)
            raise _silent_end(request, process.returncode, log.read().decode(errors="replace"))
    return msgspec.json.decode((folder / RESULT).read_bytes(), type=ImportDocument)


def _silent_end(request: ImportRequest, code: int, log: str) -> Exception:
    """Return the error of a process that wrote neither a result nor an error."""
    during = f"polybench read {request.name}" if (Path(request.folder) / LOADED).exists() else "the file ran"
    printed = " / ".join(log.strip().splitlines()[-_LOG_LINES:]) or "nothing"
    place, end = Path(request.file).name, f"while {during}; it printed: {printed}"
    if code < 0:
        return ConfigurationFailed(f"{place}: the process was killed by {signal.Signals(-code).name} {end}")
    return BadInput(f"{place}: something such as os._exit ended the process with code {code} {end}")


def import_model(model: Any, input_shape: Shape | None = None) -> Model:
    """Translate a PyTorch module or a Keras model into a network, for `model` of every function, and prove it.

    The model is not changed. Its weights are not used: engines start from those of the seed.

    Args:
        model: a `torch.nn.Module`, or a functional or sequential `keras.Model`.
        input_shape: (channels, height, width), (time, features) or (tokens,) of one input; by default that of the Keras
            model, or (3, 32, 32).

    Raises:
        BadInput: an operation has no layer in polybench.
        ConfigurationFailed: the network does not compute the same as the model.
    """
    kind = type(model)
    try:
        file = Path(inspect.getsourcefile(kind) or "")
    except (OSError, TypeError):  # defined in a notebook, or interactively
        file = None
    if _framework(model) == "torch" and input_shape is None:
        input_shape = (3, 32, 32)
    with tempfile.TemporaryDirectory() as folder:
        document, _ = translate_model(model, input_shape, Path(folder), file, kind.__name__)
    if document.proof.failure:
        raise ConfigurationFailed(f"{kind.__name__}: the network is not the same: {document.proof.failure}")
    text = TomlText(document.model, document.network)
    return network_of(text, text.load())


def translate_model(
    model: Any, input_shape: Shape | None, folder: Path, file: Path | None, name: str
) -> tuple[ImportDocument, Weights]:
    """Translate a model of any framework and prove the network, in this process; return its weights as well."""
    from polybench.importer.errors import as_bad_input
    from polybench.importer.proof import canonical_weights, prove

    with as_bad_input(file, name):
        translation, program = _open(model, input_shape, file, name)
        with contextlib.closing(program):
            values = canonical_weights(translation, program.variables())
            proof = prove(program, translation, folder)
    weights = {key: value.astype("float32") for key, value in values.items()}
    framework = _framework(model)
    network = translation.model
    document = ImportDocument(
        program=f"{file.name}:{name}" if file else name,
        framework=framework,
        versions=model.versions if framework == "flux" else {framework: importlib.metadata.version(framework)},
        network=network_toml(network),
        model=network.name,
        parameters=network.parameters(),
        layers=translation.layers,
        notes=translation.notes,
        proof=proof,
    )
    return document, weights


def _open(model: Any, input_shape: Shape | None, file: Path | None, name: str) -> tuple[Translation, Program]:
    """Translate the model, and open it for training in float64."""
    framework = _framework(model)
    if framework != "keras" and input_shape is None:
        raise _no_shape(name)
    if framework == "flux":
        from polybench.importer.flux_graph import translate as translate_flux
        from polybench.importer.flux_program import FluxProgram

        assert input_shape is not None
        chain = translate_flux(model, input_shape, name)
        return chain.translation, FluxProgram(model, chain)
    if framework == "torch":
        from polybench.importer.torch_graph import translate
        from polybench.importer.torch_operations import OPERATIONS
        from polybench.importer.torch_program import TorchProgram

        assert input_shape is not None
        translation = translate(model, input_shape, file, OPERATIONS)
        probabilities = translation.returns_probabilities
        return translation, TorchProgram(model, translation.model.optimizer, returns_probabilities=probabilities)
    from polybench.importer.keras_graph import translate as translate_keras
    from polybench.importer.keras_program import KerasProgram

    translated = translate_keras(model)
    return translated.translation, KerasProgram(model, translated)


def _no_shape(name: str) -> BadInput:
    return BadInput(f"{name} has no input shape: use --input, for example --input 3x32x32")


def _framework(model: Any) -> str:
    """Return the framework of a model, without importing any."""
    kinds = (
        ("flux", "polybench.importer.flux_graph", "FluxModel"),
        ("keras", "keras", "Model"),
        ("torch", "torch", "nn.Module"),
    )
    for framework, module, kind in kinds:
        found: Any = sys.modules.get(module)
        for part in kind.split("."):
            found = getattr(found, part, None)
        if found is not None and isinstance(model, found):
            return framework
    raise BadInput(f"{type(model).__name__} is not a model: expected a torch.nn.Module or a keras.Model")
