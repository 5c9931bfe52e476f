"""Trace files are untrusted input: everything else is refused with a clear sentence."""

from __future__ import annotations

import contextlib
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from polybench.errors import BadInput
from polybench.schema.encoding import encode
from polybench.schema.trace import TRACE_SCHEMA, StepRecord, TensorKind, TraceHeader
from polybench.trace.diff import diff
from polybench.trace.file import Array, Trace, TraceWriter

Steps = list[dict[TensorKind, dict[str, Array]]]
HEADER = TraceHeader(schema=TRACE_SCHEMA, framework="numpy", versions={}, steps=[0])
STEP = StepRecord(1.0, "", 0.0)


def write(file: Path, tensors: dict[str, Array], header: TraceHeader = HEADER) -> Path:
    writer = TraceWriter(file, header)
    for step in (0, 1):
        for name, tensor in tensors.items():
            writer.add_tensor(step, "weight", name, tensor)
    writer.finish_step(0, STEP)
    writer.close()
    return file


@given(
    name=st.text(min_size=1, max_size=40).filter(lambda text: text.isprintable()),
    tensor=arrays.arrays(st.sampled_from(["f4", "f8", "i8", "u1", "?"]), arrays.array_shapes(min_dims=0)),
)
def test_a_tensor_comes_back(name: str, tensor: Array, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = write(tmp_path_factory.mktemp("trace") / "a", {name: tensor})
    with Trace(file) as trace:
        assert trace.names(0, "weight") == [name]
        read = trace.tensor(0, "weight", name)
        assert read.shape == tensor.shape
        assert np.array_equal(read, tensor, equal_nan=tensor.dtype.kind == "f")


def test_a_tensor_whose_first_axis_is_contiguous_comes_back(tmp_path: Path) -> None:
    tensor = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    with Trace(write(tmp_path / "a", {"w": tensor})) as trace:
        assert trace.tensor(0, "weight", "w").tolist() == tensor.tolist()


@given(position=st.integers(0, 10_000), byte=st.integers(0, 255), length=st.integers(0, 12_000))
def test_damage_is_refused_or_harmless(
    position: int, byte: int, length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = write(tmp_path_factory.mktemp("trace") / "a", {"w": np.ones((3, 4), "f4"), "b": np.ones(3, "f4")})
    content = bytearray(file.read_bytes())
    content[position % len(content)] = byte
    damaged = file.with_name("b")
    damaged.write_bytes(content[:length])
    for pair in ((damaged, file), (file, damaged)):
        with contextlib.suppress(BadInput):
            diff(*pair)


NAMES = st.sampled_from(["weight", "bias", "kernel", "running_var"])
NUMBERS = st.sampled_from(["f4", "f8", "i8", "u1", "?"])
SOME = st.dictionaries(
    NAMES, arrays.arrays(NUMBERS, arrays.array_shapes(min_dims=0, max_dims=3, max_side=3)), max_size=3
)
STEPS = st.lists(st.fixed_dictionaries(dict.fromkeys(("weight", "gradient", "statistic", "batch"), SOME)), max_size=3)


@given(traces=st.tuples(STEPS, STEPS), is_equal=st.booleans())
def test_any_tensors_are_compared_or_refused(
    traces: tuple[Steps, Steps], is_equal: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever numbers a trace has, also none, NaN and other shapes in later steps: JSON, or a clear sentence."""
    folder = tmp_path_factory.mktemp("traces")
    files = folder / "a", folder / "b"
    for file, steps in zip(files, (traces[0], traces[0]) if is_equal else traces, strict=True):
        writer = TraceWriter(file, HEADER)
        for number, kinds in enumerate(steps):
            for kind, tensors in kinds.items():
                for name, tensor in tensors.items():
                    writer.add_tensor(number, kind, name, tensor)
            writer.finish_step(number, STEP)
        writer.close()
    with contextlib.suppress(BadInput), np.errstate(all="ignore"):
        encode(diff(*files))


def test_initial_statistics_that_differ_are_located_although_none_follow(tmp_path: Path) -> None:
    for name, value in (("a", 0.0), ("b", 1.0)):
        writer = TraceWriter(tmp_path / name, HEADER)
        writer.add_tensor(0, "weight", "w", np.ones(3))
        writer.add_tensor(0, "statistic", "running_mean", np.full(3, value))
        writer.finish_step(0, STEP)
        writer.close()
    first = diff(tmp_path / "a", tmp_path / "b").first_difference
    assert first is not None
    assert (first.step, first.kind, first.tensor) == (0, "statistic", "running_mean")


def test_a_trace_with_nan_is_compared(tmp_path: Path) -> None:
    one, nan = np.ones((2, 3)), np.full((2, 3), np.nan)
    document = diff(write(tmp_path / "a", {"w": one}), write(tmp_path / "b", {"w": nan}))
    assert document.first_difference is not None
    assert (document.first_difference.kind, document.first_difference.error) == ("weight", None)
    assert b'"weight": null' in encode(document)


def test_a_weight_with_many_axes_is_refused_at_once(tmp_path: Path) -> None:
    file = write(tmp_path / "a", {"w": np.ones((1,) * 30)})
    with pytest.raises(BadInput, match="has no counterpart"):
        diff(file, file)


def test_a_weight_whose_shape_changes_is_refused(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "a", HEADER)
    for step in (0, 1):
        writer.add_tensor(step, "weight", "w", np.ones(2 + step))
    writer.finish_step(0, STEP)
    writer.close()
    with pytest.raises(BadInput, match=r"step 1: weight 'w' has the shape \(3,\), expected \(2,\)"):
        diff(tmp_path / "a", tmp_path / "a")


def archive(file: Path, *entries: tuple[str, bytes]) -> Path:
    with tarfile.open(file, "w") as tar:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    header = b'{"schema": "polybench.trace/1", "framework": "numpy", "versions": {}, "steps": [0]}'
    other = header.replace(b"trace/1", b"trace/9")
    (tmp_path / "pickle").write_bytes(pickle.dumps({"weights": [1.0]}))
    (tmp_path / "empty").touch()
    files = {
        "cannot read the trace": tmp_path / "missing",
        "is not a trace": tmp_path / "pickle",
        "is empty": archive(tmp_path / "no_entries"),
        "first entry is 'x'": archive(tmp_path / "x", ("x", b"")),
        "this polybench reads polybench.trace/1": archive(tmp_path / "version", ("trace.json", other)),
        "unexpected entry '../a'": archive(tmp_path / "path", ("trace.json", header), ("../a", b"")),
        "has no complete step": archive(tmp_path / "step", ("trace.json", header)),
        "trace.json: framework": archive(tmp_path / "type", ("trace.json", header.replace(b'"numpy"', b"3"))),
    }
    for message, file in files.items():
        with pytest.raises(BadInput, match=message) as error:
            Trace(file)
        assert error.value.exit_code == 2
    with pytest.raises(BadInput, match="empty"):
        Trace(tmp_path / "empty")


def test_an_array_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}], dtype=object), allow_pickle=True)
    header = b'{"schema": "polybench.trace/1", "framework": "numpy", "versions": {}, "steps": [0]}'
    step = b'{"loss": 1, "batch_sha256": "", "seconds": 0}'
    entries = ("trace.json", header), ("000000/weight/w.npy", buffer.getvalue()), ("000000/step.json", step)
    with Trace(archive(tmp_path / "a", *entries)) as trace, pytest.raises(BadInput, match="expected real numbers"):
        trace.tensor(0, "weight", "w")


def test_a_trace_that_is_cut_off_names_the_last_complete_step(tmp_path: Path) -> None:
    file = write(tmp_path / "a", {"w": np.ones(1000)})
    writer = TraceWriter(tmp_path / "b", HEADER)
    writer.finish_step(0, STEP)
    writer.add_tensor(1, "weight", "w", np.ones(5000))
    writer.close()
    file.write_bytes((tmp_path / "b").read_bytes()[:4000])
    with pytest.raises(BadInput, match="is cut off, complete until step 0"):
        Trace(file)


def test_different_networks_are_refused(tmp_path: Path) -> None:
    a = write(tmp_path / "a", {"w": np.ones((2, 3)), "b": np.ones(2)})
    b = write(tmp_path / "b", {"w": np.ones((2, 4)), "b": np.ones(2)})
    with pytest.raises(BadInput, match=r"weight 'w' \(2x3\) has no counterpart"):
        diff(a, b)
    with pytest.raises(BadInput, match=r"has 2 weights, .* has 1"):
        diff(a, write(tmp_path / "c", {"w": np.ones((2, 3))}))


def test_a_map_pairs_what_shapes_do_not_tell(tmp_path: Path) -> None:
    ones, twos = np.ones((2, 2)), np.full((2, 2), 2.0)
    a = write(tmp_path / "a", {"first": ones, "second": twos})
    b = write(tmp_path / "b", {"x": twos + 1, "y": ones + 1})
    names = tmp_path / "map.toml"
    names.write_text('first = "y"\nsecond = "x"\n')
    assert [pair[:2] for pair in diff(a, b, names).pairs] == [("first", "y"), ("second", "x")]
    names.write_text('first = "x"\nsecond = "x"\n')
    with pytest.raises(BadInput, match="two lines name the same weight of B"):
        diff(a, b, names)
    names.write_text('first = "z"\n')
    with pytest.raises(BadInput, match="has no weight 'z'; its weights are: x, y"):
        diff(a, b, names)


def _trace_with_header(file: Path, header: str) -> Path:
    """Write a trace whose weight has this text as its NumPy header."""
    text = header.encode().ljust(502) + b"\n"
    array = np.lib.format.magic(1, 0) + len(text).to_bytes(2, "little") + text + bytes(4)
    with tarfile.open(file, "w") as archive:
        entries = {"trace.json": encode(HEADER), "000000/weight/w.npy": array, "000000/step.json": encode(STEP)}
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file


@pytest.mark.parametrize(
    "shape",
    [f"({'1, ' * 70})", "(True,)", "(1, True)", f"(0, {1 << 70})", f"({1 << 62}, 4, 0)", "(-1,)", "(1.0,)", "(None,)"],
)
def test_a_shape_that_no_array_has_is_refused(shape: str, tmp_path: Path) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    with Trace(_trace_with_header(tmp_path / "a", header)) as trace, pytest.raises(BadInput, match="tensor 'w'"):
        trace.tensor(0, "weight", "w")


def test_a_shape_of_one_number_is_read(tmp_path: Path) -> None:
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"
    with Trace(_trace_with_header(tmp_path / "a", header)) as trace:
        assert trace.tensor(0, "weight", "w").tolist() == [0.0]
