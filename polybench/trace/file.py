"""Trace files: a tar archive of NumPy arrays and JSON, written step by step and read as untrusted input.

trace.json                       the header
000000/weight/conv1.weight.npy   a tensor before step 0; of kind batch, weight, gradient, statistic or optimizer
000000/step.json                 the last entry of a complete step
000001/weight/...                weights after step 0, also if step 1 is not recorded
"""

from __future__ import annotations

import io
import math
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from types import TracebackType
from typing import Any, NamedTuple, get_args
from urllib.parse import quote, unquote

import msgspec
import numpy as np
from numpy.typing import NDArray

from polybench.data.disk import open_regular_file
from polybench.errors import BadInput, format_validation_error
from polybench.schema.trace import TRACE_SCHEMA, StepRecord, TensorKind, TraceHeader
from polybench.trace.dtypes import rounding_unit

Array = NDArray[Any]

_HEADER = "trace.json"
_ENTRY = re.compile(rf"(\d{{6,12}})/(?:step\.json|({'|'.join(get_args(TensorKind))})/([^/]{{1,1500}})\.npy)")
_MAX_JSON_BYTES = 1 << 24
_MAX_ENTRIES = 1_000_000
_NUMBERS = "fiub"
"""Kinds of NumPy numbers in a trace: float, integer, unsigned, boolean."""


class TraceWriter:
    """Writes a trace to FILE.partial, and renames it to FILE when it closes; an older FILE remains until then."""

    def __init__(self, path: Path, header: TraceHeader) -> None:
        self._path, self._partial = path, path.with_name(f"{path.name}.partial")
        try:
            self._tar = tarfile.open(self._partial, "w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - `close` closes it
        except OSError as error:
            raise BadInput(f"cannot write the trace {path}: {error.strerror}") from error
        self._add(_HEADER, msgspec.json.encode(header))

    def add_tensor(self, step: int, kind: TensorKind, name: str, tensor: Array) -> None:
        """Append one tensor of numbers before step `step`, or of the step itself for batches and gradients."""
        if tensor.dtype.kind not in _NUMBERS:
            raise BadInput(f"{kind} {name} has the type {tensor.dtype}: expected real numbers")
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, tensor, allow_pickle=False)
        self._add(f"{step:06}/{kind}/{quote(name, safe='')}.npy", buffer.getvalue())

    def finish_step(self, step: int, record: StepRecord) -> None:
        """Mark a step as complete."""
        self._add(f"{step:06}/step.json", msgspec.json.encode(record))

    def discard(self) -> None:
        """Delete what was written."""
        self._tar.close()
        self._partial.unlink(missing_ok=True)

    def close(self) -> None:
        """End the archive and give the file its name."""
        self._tar.close()
        self._partial.replace(self._path)

    def _add(self, name: str, content: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        self._tar.addfile(info, io.BytesIO(content))
        self._tar.members = []  # type: ignore[attr-defined]  # otherwise it keeps a record of every entry


class _Location(NamedTuple):
    offset: int
    size: int


class _Array(NamedTuple):
    """What the header of an array says, and the offset of its first number."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]
    start: int


class Trace:
    """A trace that is read: the header, complete steps, and tensors on demand.

    Args:
        path: the file.

    Raises:
        BadInput: the file is missing, it is not a trace, another version wrote it, or it is cut off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.steps: dict[int, StepRecord] = {}
        self._tensors: dict[tuple[int, TensorKind], dict[str, _Location]] = {}
        self._arrays: dict[_Location, _Array] = {}
        try:
            self._file = open_regular_file(path)
        except OSError as error:
            raise BadInput(
                f"cannot read the trace {path}: {error.strerror}: expected a file of polybench.record"
            ) from error
        try:
            self.header = self._read_entries()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._file.close()

    def names(self, step: int, kind: TensorKind) -> list[str]:
        """Return the names of tensors, in the order of the recording."""
        return list(self._tensors.get((step, kind), ()))

    def shapes(self, step: int, kind: TensorKind) -> dict[str, tuple[int, ...]]:
        """Return the shape of each tensor by name."""
        return {name: self._array(location, name).shape for name, location in self._group(step, kind).items()}

    def tensor(self, step: int, kind: TensorKind, name: str) -> Array:
        """Read a tensor, in float64 except for integers of a batch. Raises BadInput if the trace has no such tensor."""
        location = self._group(step, kind).get(name)
        if location is None:
            raise BadInput(f"{self.path}: step {step} has no {kind} {name!r}")
        if kind in ("weight", "gradient", "statistic"):
            self._check_shape(step, kind, name)
        array = self._array(location, name)
        self._file.seek(array.start)
        flat = np.fromfile(self._file, array.dtype, math.prod(array.shape))
        tensor = flat.reshape(array.shape, order="F" if array.fortran_order else "C")
        return tensor if kind == "batch" and array.dtype.kind != "f" else tensor.astype("float64")

    def tensors(self, step: int, kind: TensorKind) -> dict[str, Array]:
        """Read all tensors of a kind."""
        return {name: self.tensor(step, kind, name) for name in self.names(step, kind)}

    def dtype(self, step: int, kind: TensorKind, name: str) -> str:
        """Return the type that a tensor had in its training; NumPy may lack it, so that the file has float32."""
        records = (self.steps[one] for one in (step, step - 1) if one in self.steps)
        own = next((record.dtypes.get(f"{kind}/{name}") for record in records), None)
        return own or self._array(self._group(step, kind)[name], name).dtype.name

    def epsilon(self) -> float:
        """Return the rounding unit of the weights: the largest one of their types."""
        units = {rounding_unit(self.dtype(0, "weight", name)) for name in self.names(0, "weight")}
        return max(units, default=0.0) or rounding_unit("float32")

    def _group(self, step: int, kind: TensorKind) -> Mapping[str, _Location]:
        return self._tensors.get((step, kind), {})

    def _check_shape(self, step: int, kind: TensorKind, name: str) -> None:
        """Raise BadInput if a tensor has another shape than the weight, or the statistic, before step 0."""
        origin: TensorKind = "statistic" if kind == "statistic" else "weight"
        first = self._group(0, origin).get(name)
        if first is None or (step, kind) == (0, origin):
            return
        expected, found = (self._array(one, name).shape for one in (first, self._group(step, kind)[name]))
        if found != expected:
            raise BadInput(f"{self.path}: step {step}: {kind} {name!r} has the shape {found}, expected {expected}")

    def _read_entries(self) -> TraceHeader:
        header: TraceHeader | None = None
        try:
            with tarfile.open(fileobj=self._file, mode="r:") as archive:
                for count, entry in enumerate(archive):
                    archive.members = []  # type: ignore[attr-defined]
                    if count > _MAX_ENTRIES:
                        raise BadInput(f"{self.path}: expected at most {_MAX_ENTRIES:,} entries")
                    if header is None:
                        header = self._read_header(entry)
                    else:
                        self._read_entry(entry)
        except tarfile.ReadError as error:
            if header is None:
                raise BadInput(f"{self.path} is not a trace: expected a file of polybench.record") from error
            raise self._cut_off() from error
        except (OSError, ValueError, OverflowError, RecursionError, EOFError) as error:
            raise BadInput(f"{self.path} is damaged: {error}") from error
        if header is None:
            raise BadInput(f"{self.path} is empty: expected a file of polybench.record")
        if not self.steps:
            raise BadInput(f"{self.path} has no complete step: call `step` of the recorder after each training step")
        return header

    def _cut_off(self) -> BadInput:
        complete = f"complete until step {max(self.steps)}" if self.steps else "without a complete step"
        return BadInput(f"{self.path} is cut off, {complete}: record it again, and let the `with` block end")

    def _read_header(self, entry: tarfile.TarInfo) -> TraceHeader:
        if entry.name != _HEADER:
            raise BadInput(f"{self.path} is not a trace: its first entry is {entry.name!r}, expected {_HEADER}")
        header: TraceHeader = self._read_json(entry, TraceHeader)
        if header.schema != TRACE_SCHEMA:
            raise BadInput(f"{self.path} has the format {header.schema!r}: this polybench reads {TRACE_SCHEMA}")
        return header

    def _read_entry(self, entry: tarfile.TarInfo) -> None:
        match = _ENTRY.fullmatch(entry.name)
        if match is None or not entry.isreg():
            raise BadInput(f"{self.path}: unexpected entry {entry.name!r}")
        step, kind, name = int(match[1]), match[2], match[3]
        if kind is None:
            self.steps[step] = self._read_json(entry, StepRecord)
            return
        group = self._tensors.setdefault((step, kind), {})  # type: ignore[arg-type]  # the pattern has only kinds
        group[unquote(name)] = _Location(entry.offset_data, entry.size)

    def _read_json(self, entry: tarfile.TarInfo, kind: type[Any]) -> Any:
        if not entry.isreg() or entry.size > _MAX_JSON_BYTES:
            raise BadInput(f"{self.path}: {entry.name}: expected a file of at most {_MAX_JSON_BYTES:,} bytes")
        position = self._file.tell()
        self._file.seek(entry.offset_data)
        text = self._file.read(entry.size)
        self._file.seek(position)
        if len(text) < entry.size:
            raise self._cut_off()
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.MsgspecError as error:
            raise BadInput(f"{self.path}: {entry.name}: {format_validation_error(error)}") from error

    def _array(self, location: _Location, name: str) -> _Array:
        """Return what an array's header says; NumPy parses it as a Python literal, so it is parsed once."""
        if location not in self._arrays:
            self._arrays[location] = self._read_array_header(location, name)
        return self._arrays[location]

    def _read_array_header(self, location: _Location, name: str) -> _Array:
        self._file.seek(location.offset)
        try:
            version = np.lib.format.read_magic(self._file)
            if version != (1, 0):
                raise ValueError(f"version {version} of the format")
            shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(self._file)
            start = self._file.tell()
            _check_axes(shape, dtype)
        except (ValueError, EOFError, SyntaxError, TokenError, TypeError, RecursionError, MemoryError) as error:
            raise BadInput(f"{self.path}: tensor {name!r} is not a NumPy array: {error}") from error
        if dtype.kind not in _NUMBERS:
            raise BadInput(f"{self.path}: tensor {name!r} has the type {dtype}: expected real numbers")
        if math.prod(shape) * dtype.itemsize != (size := location.offset + location.size - start):
            raise BadInput(f"{self.path}: tensor {name!r} has {size} bytes: expected those of {shape} {dtype}")
        return _Array(shape, fortran_order, dtype, start)


def _check_axes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise ValueError for a shape in a header that no array has."""
    if any(type(length) is not int for length in shape):  # a boolean is an int
        raise ValueError(f"the shape {shape}")
    np.broadcast_to(np.empty((), dtype), shape)  # NumPy's own limits, without memory
