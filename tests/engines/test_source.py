"""A user's program as text: its functions, and what polybench replaces in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.engines.source import Source, read_source
from polybench.errors import BadInput
from tests.commands import printed, refused
from tests.user_programs import PROGRAM


def read(folder: Path, text: str) -> Source:
    (path := folder / "mine.py").write_text(text)
    return read_source(path)


def test_a_program_is_read_without_running_it(tmp_path: Path) -> None:
    source = read(tmp_path, f"{PROGRAM}\nraise SystemExit\n")
    assert source.functions.items() >= {"setup": 1, "reset": 3, "load": 2, "train_step": 2, "weights": 1}.items()
    assert source.takes_weights
    assert source.has_dtype
    assert not source.has_device


@pytest.mark.parametrize(
    ("setup", "takes"),
    [
        ("def setup(): pass", False),
        ("def setup(weights=None): pass", True),
        ("def setup(*, weights): pass", False),
        ("def setup(*args): pass", True),
        ("from other import setup", True),
        ("from other import make as setup", True),
        ("setup = make", True),
    ],
)
def test_a_program_that_takes_weights_can_be_checked(setup: str, takes: bool, tmp_path: Path) -> None:
    text = f"{setup}\ndef load(images, labels): pass\ndef train_step(state, batch): pass\n"
    assert read(tmp_path, text).takes_weights == takes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def setup(weights): pass\n", r"mine\.py lacks load\(\) and train_step\(\): expected the functions setup"),
        ("x = (\n", r"mine\.py, line 1: '\(' was never closed: expected a program in Python"),
        ("def setup(\n\n", "mine.py, line 1: "),
        ("", r"lacks setup\(\) and load\(\) and train_step\(\)"),
    ],
)
def test_a_file_that_is_no_program_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        read(tmp_path, text)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.py: No such file or directory: expected a program, a file ending in"):
        read_source(tmp_path / "none.py")
    with pytest.raises(BadInput, match="Is a directory"):
        read_source(tmp_path)
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=r"bytes\.py: not UTF-8"):
        read_source(tmp_path / "bytes.py")


@pytest.mark.parametrize(
    ("line", "double"),
    [
        ('DTYPE = "float32"', 'DTYPE = "float64"'),
        ("DTYPE = torch.float32", "DTYPE = torch.float64"),
        ("DTYPE: str = jnp.float32  # of the weights", "DTYPE: str = jnp.float64  # of the weights"),
        ("DTYPE = np.float64", "DTYPE = np.float64"),
        ("MY_DTYPE = np.float32", None),
        ("    DTYPE = np.float32", None),
        ("DTYPE = torch.bfloat16", None),
        ("DTYPES = np.float32", None),
    ],
)
def test_the_precision_is_a_constant_at_the_top(line: str, double: str | None, tmp_path: Path) -> None:
    source = Source(tmp_path, f"import x\n{line}\nDTYPE_NAME = 'float32'\n", {})
    assert source.has_dtype == (double is not None)
    assert source.adapted("float64", "cpu") == source.text.replace(line, double or line)
    assert source.adapted("float32", "cpu") == source.text.replace("np.float64", "np.float32")


@pytest.mark.parametrize(
    ("device", "text"), [("cpu", 'DEVICE = "cpu"'), ("cuda", 'DEVICE = "cuda:0"'), ("cuda:1", 'DEVICE = "cuda:1"')]
)
def test_the_device_is_a_constant_at_the_top(device: str, text: str, tmp_path: Path) -> None:
    for before in ('DEVICE = "cpu"', 'DEVICE = "cuda"', 'DEVICE = "cuda:3"'):
        source = Source(tmp_path, f"{before}\n", {})
        assert source.has_device
        assert source.adapted("float32", device) == f"{text}\n"
    assert not Source(tmp_path, "DEVICE = jax.devices()[0]\n", {}).has_device


def test_the_template_has_all_functions(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    printed("export", "--template", file)
    source = read_source(file)
    assert {"setup", "reset", "load", "train_step", "weights"} <= source.functions.keys()
    assert source.takes_weights
    assert source.has_dtype
    assert source.has_device
    assert "--engines torch,./mine.py" in source.text
    assert refused("export", "--template", file) == f"--template: {file} exists: name another one, or add --force"
    printed("export", "--template", file, "--force")
    assert refused("export", "--template", file, "--train") == "--train: has no effect with --template: leave it out"
    assert refused("export", "--template", "mine.txt") == "--template mine.txt: expected a file ending in .py"
