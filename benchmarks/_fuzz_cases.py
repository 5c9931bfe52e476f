"""Fuzz targets: each accepts any bytes and raises only if there is a bug."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import shlex
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
from typer.testing import CliRunner

from polybench.analysis.diff import diff
from polybench.analysis.explanation import SavedDocuments, explain
from polybench.analysis.history import build_history
from polybench.analysis.merge import merge
from polybench.cli import app
from polybench.data import cifar10, image_folder, synthetic
from polybench.errors import BadInput, ConfigurationFailed, EngineUnavailable, PolybenchError
from polybench.figures import FIGURES, draw
from polybench.html_report import StudySection, render_report
from polybench.log import read_log
from polybench.networks import find_model
from polybench.networks.model import Model
from polybench.networks.network_file import network_of, network_toml
from polybench.networks.timed_layers import split_layers
from polybench.networks.toml_text import TomlText
from polybench.parity_check.cache import CheckCache
from polybench.planning.study_file import parse
from polybench.protocol import calls
from polybench.protocol.process import WorkerProcess
from polybench.render import EXPLANATION_FORMATS, FORMATS, explanation, render
from polybench.results.layers import derive_layers
from polybench.results.summaries import summarize as summarize_document
from polybench.runner.prepare import new_header, new_log, open_session
from polybench.runner.process_runs import ProcessRuns
from polybench.runner.progress import NullProgress
from polybench.schema.documents import AnyDocument, kind_of, read_document
from polybench.schema.encoding import encode
from polybench.schema.measurements import LayersDocument, SweepDocument
from polybench.schema.options import Study
from polybench.schema.study import StudyDocument, from_json
from polybench.schema.trace import TraceDiffDocument, TraceSummary
from polybench.storage.anonymize import anonymize
from polybench.storage.store import Store, load_document
from polybench.trace import diff as trace_diff
from polybench.trace.file import Trace
from polybench.trace.recorder import record
from polybench.trace.summary import summarize

_FOLDER = Path(tempfile.gettempdir()) / f"polybench-fuzz-{os.getpid()}"


def document(data: bytes) -> None:
    """Read a saved document of any kind, and do everything with it that a command does."""
    try:
        found = read_document(data)
    except msgspec.MsgspecError:
        return
    use(found)


def edited_document(data: bytes) -> None:
    """The same with a few values of a valid document replaced."""
    valid = _documents()
    document(msgspec.json.encode(edit(valid[data[0] % len(valid)], data[1:])) if data else b"")


def use(found: AnyDocument) -> None:
    """Print in every format, draw every figure, compare, merge, explain and report; raise if that fails."""
    kind = kind_of(found.schema)
    done: list[Callable[[], object]] = [partial(encode, found), partial(anonymize, found)]
    if kind == "explanation":
        done += [partial(explanation.render, found, name) for name in EXPLANATION_FORMATS]
    else:
        done += [partial(render, found, name) for name in FORMATS]
    done += [partial(draw, name, found) for name, figure in FIGURES.items() if figure.kind == kind]
    if isinstance(found, StudyDocument):
        done.append(partial(summarize_document, found))
        other = msgspec.structs.replace(from_json(_GOLDEN.read_bytes()), id="other")
        saved = SavedDocuments([], [found, other])
        for pair in ((found, other), (other, found)):
            done += [
                lambda pair=pair: use(diff(*pair)),
                lambda pair=pair: use(build_history(pair)),
                lambda pair=pair: use(merge(pair, {})),
            ]
        done += [
            lambda: use(explain(found, saved)),
            lambda: render_report([StudySection(found, explanation=explain(found, saved))]),
        ]
    if isinstance(found, StudyDocument | SweepDocument):
        done.append(partial(render_report, [found if isinstance(found, SweepDocument) else StudySection(found)]))
    if isinstance(found, LayersDocument):
        layered = msgspec.structs.replace(from_json(_GOLDEN.read_bytes()), study=found.study)
        done.append(lambda: explain(layered, SavedDocuments([found], [])))
        done.append(partial(render_report, [StudySection(layered, layers=found)]))
    for one in done:
        with contextlib.suppress(PolybenchError):
            one()


DELETED = object()
ODD: tuple[Any, ...] = (
    None, 0, -1, 1e-9, 5e-324, 1e-100, 1e100, 1e308, 2**63, 10**30, "", "x\n\x1b[0m|&<", "../..",
    [], {}, True, [[[]]], DELETED,
)  # fmt: skip
"""Values that edits put into a valid input. Further edits double a list, or copy a value from elsewhere."""


def edit(valid: Any, data: bytes) -> Any:
    """Replace up to four values of a JSON document, as `data` chooses."""
    content = msgspec.json.decode(msgspec.json.encode(valid))
    for start in range(0, min(len(data), 20) - 4, 5):
        if not (paths := list(_paths(content))):
            break
        one, other = (paths[int.from_bytes(data[start + at : start + at + 2]) % len(paths)] for at in (0, 2))
        with contextlib.suppress(KeyError, IndexError, TypeError):
            _put(content, one, other, data[start + 4])
    return content


def _put(content: Any, path: Sequence[Any], other: Sequence[Any], choice: int) -> None:
    parent, key = _get(content, path[:-1]), path[-1]
    if choice % 20 < len(ODD):
        odd = ODD[choice % 20]
        if odd is DELETED:
            del parent[key]
        else:
            parent[key] = odd
    elif choice % 20 == len(ODD):
        parent[key] = parent[key] * 2
    else:
        parent[key] = msgspec.json.decode(msgspec.json.encode(_get(content, other)))


def _get(content: Any, path: Sequence[Any]) -> Any:
    for key in path:
        content = content[key]
    return content


def _paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the key paths of all values in a document."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*above, key)
        yield from _paths(part, (*above, key))


def log(data: bytes) -> None:
    """Read a log, compute its document, and print it."""
    path = _FOLDER / "fuzzed.jsonl"
    path.write_bytes(data)
    for salvage in (False, True):
        with contextlib.suppress(BadInput):
            render(load_document(str(path), Store(_FOLDER), salvage=salvage), "table")


def edited_log(data: bytes) -> None:
    """The same with a few values replaced in the log of an unfinished study, or of layers."""
    lines = _layers_log().read_bytes().splitlines() if data and data[0] % 2 else _unfinished()
    events = edit([msgspec.json.decode(line) for line in lines], data[1:])
    log(b"".join(msgspec.json.encode(event) + b"\n" for event in events))


_ID = "20250101-000000-abcd"


@functools.cache
def _unfinished() -> list[bytes]:
    """Return the lines of a log after one of two process runs of the engine `fake`."""
    study = Study(engines=("fake", "fake+slow"), processes=2, rounds_per_process=2, steps_per_round=5, parity=False)
    study = msgspec.structs.replace(study, data="synthetic", batch_size=16)
    store = Store(_FOLDER / "results")
    header = msgspec.structs.replace(new_header(), id=_ID)
    folders = dict.fromkeys(("XDG_CACHE_HOME", "XDG_DATA_HOME"), str(_FOLDER))
    with (
        mock.patch.dict(os.environ, folders),
        mock.patch.dict(synthetic.IMAGES, train=200, test=100),
        new_log(study, header, store) as log,
        open_session(study, log, NullProgress(), store=store) as session,
    ):
        ProcessRuns(session).measure(0)
    return store.log_path(_ID).read_bytes().splitlines()


def cached_check(data: bytes) -> None:
    """Read a cached parity check."""
    cache = CheckCache(_FOLDER / "parity")
    entry = _FOLDER / "parity" / "key"
    entry.mkdir(parents=True, exist_ok=True)
    (entry / "manifest.json").write_bytes(data)
    cache.find("key")


def edited_cached_check(data: bytes) -> None:
    """The same with a few values replaced."""
    parity = from_json(_GOLDEN.read_bytes()).results[0].parity
    check = {"worker_info": {"info": {"versions": {"fake": "1"}, "build": {}, "devices": ["cpu"]}}, "parity": parity}
    cached_check(msgspec.json.encode(edit({"note": check, "checksums": {}}, data)))


def network(data: bytes) -> None:
    """Read a network file, and compute what is shown of the network."""
    text = TomlText("network.toml", data.decode("utf-8", "replace"))
    with contextlib.suppress(BadInput):
        model = network_of(text, text.load())
        network_toml(model)
        assert model.parameters() >= 0
        assert model.training_macs() >= 0
        list(split_layers(model))


def study(data: bytes) -> None:
    """Read a study file."""
    with contextlib.suppress(BadInput):
        parse(data.decode("utf-8", "replace"), "study.toml")


def records(data: bytes) -> None:
    """Read a folder of CIFAR-10's binary version."""
    folder = _FOLDER / "cifar10"
    folder.mkdir(parents=True, exist_ok=True)
    for name in cifar10.FILES["train"]:
        (folder / f"{name}.bin").write_bytes(data)
    with contextlib.suppress(BadInput):
        for _ in cifar10.read(folder, "train"):
            pass


def image(data: bytes) -> None:
    """Read a file in a folder of images."""
    _FOLDER.mkdir(exist_ok=True)
    path = _FOLDER / "image.png"
    path.write_bytes(data)
    with contextlib.suppress(BadInput):
        list(image_folder.read_images(image_folder.ImageFolder([path], [0], ["class"]), (3, 8, 8)))


class _Heard(WorkerProcess):
    """The parent's end of a connection without a worker process."""

    def __init__(self, data: bytes) -> None:
        self._responses_fd, write = os.pipe()
        os.set_blocking(write, False)
        with contextlib.suppress(BlockingIOError):
            os.write(write, data)
        os.close(write)
        self._buffer = bytearray()

    def kill(self) -> None:
        pass

    def _describe_exit(self) -> str:
        return "it ended"


def message(data: bytes) -> None:
    """Decode a worker's reply."""
    heard = _Heard(data)
    try:
        for _ in range(data.count(b"\n") + 1):
            with contextlib.suppress(ConfigurationFailed, EngineUnavailable):
                heard._next_answer(calls.load("x"), 1.0)
    finally:
        os.close(heard._responses_fd)


def options(data: bytes) -> None:
    """Parse the options of `compare` without measuring."""
    try:
        arguments = shlex.split(data.decode("utf-8", "surrogateescape"))
    except ValueError:
        return
    result = CliRunner().invoke(app, ["compare", *arguments, "--dry-run"])
    if result.exception is not None and not isinstance(result.exception, PolybenchError | SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2), result.exit_code


def trace(data: bytes) -> None:
    """Read a trace, print what it contains, and compare it with a valid one and with itself."""
    valid, damaged = _FOLDER / "valid.trace", _FOLDER / "damaged.trace"
    _FOLDER.mkdir(exist_ok=True)
    if not valid.exists():
        valid.write_bytes(_pack(_trace_entries()))
    damaged.write_bytes(data)
    with contextlib.suppress(BadInput), Trace(damaged) as read:
        use_trace(summarize(read), "trace_summary")
    for a, b in ((valid, damaged), (damaged, valid), (damaged, damaged)):
        with contextlib.suppress(BadInput), np.errstate(all="ignore"):
            use_trace(trace_diff.diff(a, b, model=_trace_network()), "trace")


def use_trace(found: TraceSummary | TraceDiffDocument, kind: str) -> None:
    """Print a document of `polybench trace` in every format; raise if that fails."""
    for name in FORMATS:
        render(found, name, kind=kind)


def edited_trace(data: bytes) -> None:
    """The same with a few entries of a valid trace replaced, and correct checksums of the archive."""
    entries = _trace_entries()
    for start in range(0, min(len(data), 40) - 9, 10):
        number, other, choice, length = (value % len(entries) for value in data[start : start + 4])
        name, content = entries[number]
        position = int.from_bytes(data[start + 4 : start + 6]) % (len(content) + 1)
        match choice % 6:
            case 0:
                entries[number] = name, content[:position] + data[start + 6 : start + 10] + content[position + 4 :]
            case 1:
                entries[number] = name, content[:position]
            case 2:
                entries[number] = name, entries[other][1]
            case 3:
                entries[number] = entries[other][0], content
            case 4:
                entries[number] = name, _json_edited(content, data[start + 4 : start + 9])
            case _:
                del entries[number : number + length % 4 + (len(entries) > 1)]
                entries = entries or _trace_entries()
    trace(_pack(entries))


def _json_edited(content: bytes, data: bytes) -> bytes:
    """Replace a value of an entry if it is JSON."""
    if not content.startswith(b"{"):
        return content
    return msgspec.json.encode(edit(msgspec.json.decode(content), data))


def _trace_entries() -> list[tuple[str, bytes]]:
    """Return names and contents of the entries of a small valid trace."""
    with tarfile.open(fileobj=io.BytesIO(_recorded())) as tar:
        return [(one.name, tar.extractfile(one).read()) for one in tar]  # type: ignore[union-attr]  # only files


@functools.cache
def _recorded() -> bytes:
    """Record two steps of SGD on the gradients of random losses, with running statistics."""
    random = np.random.default_rng(0)
    shapes = _trace_network().weight_shapes()
    weights = {name: random.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    statistics = {"running_mean": np.zeros(2, "f4"), "running_var": np.ones(2, "f4")}
    _FOLDER.mkdir(exist_ok=True)
    file = _FOLDER / "recorded.trace"
    with record(file, model=weights, statistics=statistics, steps=(0, 1), settings={"name": "sgd"}) as recorder:
        for step in range(2):
            batch = random.normal(size=(2, 1, 4, 4)).astype("f4"), np.arange(2)
            gradients = {name: random.normal(size=shape).astype("f4") for name, shape in shapes.items()}
            weights = {name: weight - np.float32(0.1) * gradients[name] for name, weight in weights.items()}
            recorder.step(loss=1.0 + step, batch=batch, gradients=gradients, weights=weights, statistics=statistics)
    return file.read_bytes()


@functools.cache
def _trace_network() -> Model:
    text = """
        input = { channels = 1, height = 4, width = 4 }
        classes = 2
        layers = [
            { type = "conv", name = "conv", outputs = 2, kernel = 3 },
            { type = "relu" },
            { type = "max_pool", size = 2 },
            { type = "flatten" },
            { type = "dense", name = "dense", outputs = 2 },
        ]
    """
    toml = TomlText("network.toml", text)
    return network_of(toml, toml.load())


def _pack(entries: Sequence[tuple[str, bytes]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


_TARGETS = (
    document, edited_document, log, edited_log, cached_check, edited_cached_check,
    study, network, trace, edited_trace, records, image, message, options,
)  # fmt: skip
TARGETS: dict[str, Callable[[bytes], None]] = {one.__name__: one for one in _TARGETS}


_GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "study.json"
_GALLERY = Path(__file__).parents[1] / "docs" / "gallery" / "measured"


@functools.cache
def _documents() -> list[Any]:
    """Return a small valid document of each kind."""
    whole = msgspec.json.decode(_GOLDEN.read_bytes())
    for result in whole["results"]:
        if result["step_times"]:
            result["step_times"]["values"] = [[[0.5], [0.6]]] * 2
        result["interference"]["blocks"] = []
        result["parity"]["tensors"] = result["parity"]["tensors"][:2]
    whole["interference"] = whole["interference"][:1]
    study = from_json(msgspec.json.encode(whole))
    other = msgspec.structs.replace(study, id="other", host=msgspec.structs.replace(study.host, hostname="other"))
    made = [diff(study, other), build_history([other, study]), merge([study, other], {})]
    with contextlib.suppress(BadInput):
        made.append(explain(study, SavedDocuments([], [study, other])))
    sweep = min(_GALLERY.glob("sweeps/*.json"), key=_size).read_bytes()
    large = [msgspec.json.decode(text) for text in (encode(derive_layers(read_log(_layers_log()))), sweep)]
    return [whole, *map(_shorten, large), *(msgspec.json.decode(encode(one)) for one in made), *_small_documents(study)]


def _layers_log() -> Path:
    return min(_GALLERY.glob("layers-*.jsonl"), key=_size)


def _size(path: Path) -> int:
    return path.stat().st_size


def _shorten(value: Any) -> Any:
    """Return a JSON document with at most three entries in each list."""
    if isinstance(value, dict):
        return {key: _shorten(part) for key, part in value.items()}
    return [_shorten(part) for part in value[:3]] if isinstance(value, list) else value


def _small_documents(study: StudyDocument) -> list[Any]:
    """Return an overhead, a peak and an allocations document."""
    header = study.header() | {"warnings": []}
    status = {"configuration": "torch/cpu", "engine": "torch", "variant": None, "device": "cpu", "status": "ok"}
    peak = {
        "device": "cpu", "precision": "fp32", "threads": 2, "kind": "gemm", "value": 1e11, "unit": "FLOP/s",
        "engine": "torch", "shape": "x", "ci95": [9e10, 1.1e11], "drift": 0.0, "cpu_contention": 0.0,
        "measured_at": study.created,
    }  # fmt: skip
    overhead = status | {
        "overhead_seconds": 2e-3, "seconds_per_item": 1e-4, "batch_size_at_50pct_overhead": 20.0,
        "max_relative_residual": 0.1,
        "ci95": {"overhead_seconds": [1e-3, 3e-3], "seconds_per_item": [9e-5, 1.1e-4]},
        "points": [{"batch_size": size, "step_seconds": 2e-3 + 1e-4 * size, "ci95": None} for size in (1, 8)],
    }  # fmt: skip
    site = {"location": "f", "bytes_per_step": 8.0, "count_per_step": 1.0, "avoidable_bytes_per_step": 8.0}
    profile = {"source": "s", "coverage": "c", "bytes_per_step": 8.0, "count_per_step": 1.0, "sites": [site]}
    bodies: list[dict[str, Any]] = [
        {
            "schema": "polybench.overhead/2", "model": "lenet", "threads": 2, "batch_sizes": [1, 8],
            "configurations": [overhead],
        },
        {
            "schema": "polybench.peak/2", "model": "lenet", "batch_size": 8, "threads": 2, "malloc": "retain",
            "peaks": [peak, peak | {"kind": "memory_bandwidth", "unit": "B/s", "precision": None}],
            "configurations": [status],
        },
        {
            "schema": "polybench.allocations/2", "study": study.study, "settings": study.settings,
            "configurations": [status | profile],
        },
    ]  # fmt: skip
    return [msgspec.to_builtins(header | body) for body in bodies]


def seeds() -> dict[str, list[bytes]]:
    """Return valid inputs of each target as seeds."""
    whole = _documents()[0]
    text = "engines = ['torch', 'tf']\nbatch_size = 8\ntarget_accuracy = 0.5\n[prices]\ncpu = 0.5\n"
    return {
        "document": [*map(msgspec.json.encode, _documents())],
        "edited_document": [bytes([kind, *range(9)]) for kind in range(len(_documents()))],
        "network": [network_toml(find_model(name)).encode() for name in ("lenet", "resnet32", "imdb-bilstm")],
        "study": [text.encode(), _toml(whole["study"]), b"[sweep]\nthreads = [1, 2]\n"],
        "trace": [_recorded()],
        "edited_trace": [bytes([2 * kind, kind, kind, *range(7)]) * 2 for kind in range(12)],
        "records": [b"\x03" + bytes(3072), bytes(3073 * 2)],
        "image": _images(),
        "message": [b'{"type":"block_measured","step_times":[0.1],"steps_per_value":1,"peak_rss_bytes":1}\n'],
        "options": [
            b"--engines torch,tf+xla --batch-size 8 --precision fp32,bf16",
            b"--price cpu=0.5 --lr-schedule 10=0.1 --margin 5% --budget 3s --data synthetic",
            b"--model resnet32@40 --target-accuracy 0.5 --columns speed --format csv",
        ],
    }


def _toml(text: Any) -> bytes:
    return str(text).encode()


def _images() -> list[bytes]:
    from PIL import Image

    found = []
    for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"):
        stream = io.BytesIO()
        Image.new("RGB", (9, 7), (1, 2, 3)).save(stream, kind)
        found.append(stream.getvalue())
    return found
