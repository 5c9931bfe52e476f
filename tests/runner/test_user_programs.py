"""Users' programs as rows of real studies: their check, their failures, and who may run them."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from polybench.data import synthetic
from polybench.engines.base import PipelineInput
from polybench.engines.flux.emitter import emit_start
from polybench.engines.job import Job
from polybench.engines.program.engine import ProgramEngine
from polybench.engines.source import read_source
from polybench.errors import BadInput, ConfigurationFailed
from polybench.log import ProgramStarted, read_log
from polybench.networks.initial_weights import initial_weights
from polybench.networks.optimizers import Optimizer
from polybench.planning.plan import check_remote, resolve
from polybench.planning.suggested_commands import command_line, for_parity, has_layers
from polybench.run import run_study
from polybench.runner.prepare import new_header
from polybench.runner.progress import NullProgress
from polybench.schema.options import EngineName, Study, Workload, program_paths
from polybench.schema.result import Result
from polybench.scripts.script_folder import file_name
from polybench.storage.anonymize import anonymize
from polybench.storage.store import Store
from tests.commands import printed, refused
from tests.runner.studies import FAST
from tests.user_programs import MISTAKES, MODEL, PROGRAM, without


@pytest.fixture(autouse=True)
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 256)


def study(folder: Path, *texts: str, **fields: Any) -> Study:
    """Return a study of these programs, one.py, two.py and so on."""
    names = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    for name, text in zip(names, texts, strict=False):
        path = folder / f"{name}.py"
        if not path.exists() or path.read_text() != text:  # a new file is checked again
            path.write_text(text)
    engines = tuple(f"{folder}/{name}.py" for name, _ in zip(names, texts, strict=False))
    settings = {
        **FAST, "processes": 1, "rounds_per_process": 1, "devices": ("cpu",), "model": MODEL, "batch_size": 16,
        "cold_starts": 0,
    }  # fmt: skip
    return Study(**{**settings, "engines": engines, **fields})


def measure(folder: Path, *texts: str, **fields: Any) -> list[Result]:
    return run_study(study(folder, *texts, **fields), NullProgress(), store=None).results


def check(folder: Path, *texts: str, **fields: Any) -> list[Result]:
    return run_study(study(folder, *texts, **fields), NullProgress(), store=None, parity_check="only").results


def test_a_program_is_a_row_that_is_checked_like_an_engine(tmp_path: Path) -> None:
    first, second = measure(tmp_path, PROGRAM, without(PROGRAM, "weights"))
    assert [first.configuration, second.configuration] == ["one.py/cpu", "two.py/cpu"]
    assert first.engine == "one.py"
    for result in (first, second):
        assert (result.status, result.reason, result.parity.status) == ("ok", None, "pass")
        assert result.step_time is not None
        assert result.startup is not None
        assert result.allocations.native is not None
        assert not has_layers(result)
        assert result.versions["numpy"]
    assert first.program is not None
    assert first.program.text == PROGRAM
    kinds = [{(one.part, one.kind) for one in result.parity.tensors} for result in (first, second)]
    assert kinds[0] == {(part, kind) for part in ("float64", "timed") for kind in ("loss", "weight")}
    assert kinds[1] == {("float64", "loss"), ("timed", "loss")}
    assert first.parity.float64 is not None
    assert (first.parity.float64.max_weight_error or 1) < 1e-12
    names = {one.name for one in first.parity.tensors if one.kind == "weight"}
    assert names == {"dense.weight", "dense.bias"}


NEIGHBOR = """from __future__ import annotations

from neighbor import NAME

assert (NAME, __name__ == "__main__") == ("beside the program", False)
print("anything")
"""
BESIDE_POLYBENCH = "import sys\nassert 'polybench.worker.handler' in sys.modules, 'alone'\n"


def test_the_cold_start_is_that_of_the_program_alone(tmp_path: Path) -> None:
    (tmp_path / "neighbor.py").write_text('NAME = "beside the program"\n')
    store = Store(tmp_path / "results")
    texts = [NEIGHBOR + PROGRAM, OWN, BESIDE_POLYBENCH + PROGRAM]
    document = run_study(study(tmp_path, *texts, parity=False, cold_starts=2), NullProgress(), store=store)
    (path,) = store.folder.glob("*.jsonl")
    starts = [event for event in read_log(path) if isinstance(event, ProgramStarted)]
    assert sorted(start.configuration for start in starts) == ["one.py/cpu"] * 2 + ["two.py/cpu"] * 2
    assert all(start.startup.import_seconds > 0 and start.startup.first_step_seconds > 0 for start in starts)
    losses = [start.losses for start in starts if start.configuration == "one.py/cpu"]
    assert losses[0] == losses[1] != [None, None]
    one, two, three = document.results
    assert one.startup is not None
    assert two.startup is not None
    assert (one.startup.starts, two.startup.starts, three.startup) == (2, 2, None)
    assert "no cold start: the program, started alone, ended with code 1: AssertionError: alone" in three.warnings


def test_the_start_of_a_program_in_julia_has_its_text_as_data(tmp_path: Path) -> None:
    path = tmp_path / "mine.jl"
    path.write_text('setup() = "$(1 + 1)"\nload(x, y) = x\ntrain_step!(state, batch) = 0.0f0\n')
    job = Job(MODEL, Workload(MODEL.name, "", 16, MODEL.optimizer, "fp32", 1), "cpu", "float32")
    text = emit_start(read_source(path), job, 1, "/polybench's")
    assert r'"setup() = \"\u0024(1 + 1)\"\u000a' in text
    assert "setup(weights) = Program.setup()\n" in text
    assert text.index("CLOCK = ") < text.index('push!(LOAD_PATH, "/polybench\'s")') < text.index("using NPZ")


def test_a_program_without_dtype_is_checked_as_it_is_timed(tmp_path: Path) -> None:
    (result,) = check(tmp_path, PROGRAM.replace("DTYPE", "NUMBERS"))
    assert result.parity.status == "pass"
    assert {one.part for one in result.parity.tensors} == {"timed"}


def test_mistakes_are_found_and_named(tmp_path: Path) -> None:
    texts = [PROGRAM.replace(*change) for change in MISTAKES.values()]
    assert PROGRAM not in texts
    for with_weights in (True, False):
        results = check(tmp_path, *(text if with_weights else without(text, "weights") for text in texts))
        for mistake, result in zip(MISTAKES, results, strict=True):
            assert result.parity.status == "fail", mistake
            first = {one.name for one in result.parity.tensors if not one.passed and one.step < 2}
            if mistake == "a sum in place of the mean":
                assert first == {"loss"}
            if mistake == "a bias that is not trained" and with_weights:
                assert first - {"loss"} == {"dense.bias"}


def test_without_float64_large_mistakes_are_still_found(tmp_path: Path) -> None:
    found = {}
    texts = [PROGRAM.replace(*change).replace("DTYPE", "NUMBERS") for change in MISTAKES.values()]
    for mistake, result in zip(MISTAKES, check(tmp_path, *texts), strict=True):
        found[mistake] = result.parity.status
    for small in ("another rate", "another momentum"):  # an update may be off by 20 %
        assert found.pop(small) == "pass"
    assert found == dict.fromkeys(found, "fail")


def test_a_program_may_train_its_weights_in_place(tmp_path: Path) -> None:
    in_place = PROGRAM.replace("array.astype(DTYPE) for", "array for").replace(
        'state["weights"][name] = state["weights"][name] - ', 'state["weights"][name] -= '
    )
    assert in_place.count("astype") == PROGRAM.count("astype") - 1
    assert "-= np" in in_place
    (result,) = check(tmp_path, in_place)
    assert result.parity.status == "pass", result.parity.reason


def test_a_program_does_not_take_the_place_of_a_library_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(f"import json\n{PROGRAM}\njson.dumps([])\n")
    named = study(tmp_path, engines=(f"{tmp_path}/json.py",))
    (result,) = run_study(named, NullProgress(), store=None, parity_check="only").results
    assert result.parity.status == "pass", result.reason


def test_another_optimizer_is_found_without_float64_as_well(tmp_path: Path) -> None:
    model = msgspec.structs.replace(MODEL, optimizer=Optimizer("adam", 0.01))
    (result,) = check(tmp_path, PROGRAM.replace("DTYPE", "NUMBERS"), model=model)
    assert result.parity.status == "fail"
    assert {one.kind for one in result.parity.tensors} == {"loss"}


def test_commands_name_the_path_of_a_program(tmp_path: Path) -> None:
    asked = study(tmp_path, PROGRAM, engines=("torch", "./a/mine.py@old"), env={"old": "/x"}, model="lenet")
    assert "--engines ./a/mine.py@old" in command_line("parity", for_parity(asked, "mine.py@old"))
    assert "--engines torch" in command_line("parity", for_parity(asked, "torch"))


def test_a_file_has_the_ending_of_its_language() -> None:
    names = {
        "mine.jl/cpu": "mine.jl_cpu.jl",
        "flux_edit.py@old/cpu": "flux_edit.py@old_cpu.py",
        "lux/cpu": "lux_cpu.jl",
    }
    assert {name: file_name(name) for name in names} == names
    assert file_name("flux+train@a/cuda:0#2") == "flux+train@a_cuda0_2.jl"


BAD = {
    "def load(images, labels):": ("raise ValueError('no data')", "ValueError in load: no data"),
    "def reset(state, weights, step=0):": ("raise KeyError('x')", "KeyError in setup: 'x'"),
    "def train_step(state, batch):": ("import sys; sys.exit(3)", r"the program called exit(3) in step 0"),
    "def weights(state):": (
        "return {}",
        "snapshot: expected dense.weight of shape (10, 3072), but the engine returned no such tensor",
    ),
}


@pytest.mark.parametrize("engine", ["torch", *(pytest.param(name, marks=pytest.mark.wide) for name in ("jax", "tf"))])
def test_an_exported_program_computes_what_its_engine_computes(engine: str, tmp_path: Path) -> None:
    if find_spec({"tf": "tensorflow"}.get(engine, engine)) is None:
        pytest.skip(f"{engine} is not installed")
    store = Store(tmp_path / "results")
    timed = study(tmp_path, engines=(engine,), model="lenet", parity=False, cold_starts=0, metrics=False)
    run_study(timed, NullProgress(), store=store)
    printed("export", "last", "--results", store.folder, "-o", tmp_path / "one.py")
    printed("export", "lenet", "--framework", engine, "-o", tmp_path / "two.py")  # computes when it is imported
    results = check(tmp_path, *((tmp_path / name).read_text() for name in ("one.py", "two.py")), model="lenet")
    for result in results:
        assert result.parity.status == "pass", result.reason or result.parity.reason
        assert {one.part for one in result.parity.tensors} == {"float64", "timed"}


@pytest.mark.wide
def test_the_programs_of_the_guide_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "own_program.md").read_text("utf-8")
    (text,) = re.findall(r"```python\n(import .+?)```", guide, re.DOTALL)
    results = measure(tmp_path, text, text.replace("256", "128"), parity=False, metrics=False)
    assert [one.status for one in results] == ["ok", "ok"]
    assert all(one.versions["torch"] for one in results)


@pytest.mark.parametrize("function", BAD)
def test_what_a_program_raises_is_one_line_and_the_others_go_on(function: str, tmp_path: Path) -> None:
    code, message = BAD[function]
    bad, good = check(tmp_path, PROGRAM.replace(function, f"{function}\n    {code}"), PROGRAM)
    assert (bad.status, bad.reason) == ("failed", message)
    assert bad.log_path is not None
    if code.startswith("raise"):
        assert (
            f'one.py", line {PROGRAM[: PROGRAM.index(function)].count(chr(10)) + 2}' in Path(bad.log_path).read_text()
        )
    assert good.parity.status == "pass"


ODD = {
    "it prints": "print('hello')",
    "it reads the standard input": "import sys; sys.stdin.read()",
    "it changes the working directory": "import os; os.chdir('/')",
    "it seeds otherwise": "np.random.seed(5)",
    "it forks a process that ends": "import os; child = os.fork() or os._exit(0); os.waitpid(child, 0)",
    "it forks a process that does the same": "import os; os.fork()",
}


def test_odd_programs_run(tmp_path: Path) -> None:
    line = "def train_step(state, batch):\n"
    texts = [PROGRAM.replace(line, f"{line}    {code}\n") for code in ODD.values()]
    for oddity, result in zip(ODD, check(tmp_path, *texts), strict=True):
        assert result.parity.status == "pass", (oddity, result.reason)


ENDS = {
    "raise RuntimeError('at import')": "RuntimeError while it was imported: at import",
    "import os; os._exit(7)": "7",
    "import missing_module": "ModuleNotFoundError while it was imported: No module named 'missing_module'",
}


def test_a_program_that_cannot_be_imported_fails_alone(tmp_path: Path) -> None:
    results = check(tmp_path, *(f"{text}\n{PROGRAM}" for text in ENDS), PROGRAM)
    for expected, result in zip(ENDS.values(), results[:-1], strict=True):
        assert result.status == "failed"
        assert expected in (result.reason or "")
    assert results[-1].parity.status == "pass"


def test_a_program_that_hangs_or_has_no_loss_fails_alone(tmp_path: Path) -> None:
    line = "def train_step(state, batch):\n"
    hanging = PROGRAM.replace(line, f"{line}    import time; time.sleep(60)\n")
    lossless = PROGRAM.replace("    return loss", "    return None")
    one, two, three = measure(tmp_path, hanging, lossless, PROGRAM, parity=False, timeout=5.0, cold_starts=0)
    assert one.status == "failed"
    assert "no response to prepare within 5 s (--timeout)" in (one.reason or "")
    assert (two.status, two.reason) == (
        "failed",
        "two.py: train_step returned no loss: float() argument must be a string or a real number, not 'NoneType'",
    )
    assert (three.status, three.parity.status) == ("ok", "skipped")


STEP = "def train_step(state, batch):\n"


def test_a_step_that_raises_is_named(tmp_path: Path) -> None:
    counted = PROGRAM.replace(
        STEP, f"{STEP}    state['step'] += 1\n    if state['step'] == 7: raise ValueError('seven')\n"
    )
    raising = counted.replace('    state["velocity"] = ', '    state["step"] = -1\n    state["velocity"] = ')
    one, two = measure(tmp_path, raising, PROGRAM, parity=False, steps_per_round=10, metrics=False)
    assert one.status == "failed"
    assert re.fullmatch(r"ValueError in steps? (7|\d to \d+): seven", one.reason or ""), one.reason
    assert two.status == "ok"


ASYNCHRONOUS = """
calls = []

class Loss:
    def __float__(self):
        calls.append("float")
        if len(calls) > 10:
            raise RuntimeError("a device-side assert\\nmore")
        return 0.5

def setup(): return calls
def load(images, labels): return images
def synchronize(state): state.append("wait")
def train_step(state, batch):
    state.append("step")
    return Loss()
"""
"""A program whose loss is on a device, where reading it waits for the step."""


def test_a_loss_on_a_device_is_not_read_within_the_timed_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polybench.engines.program.frameworks.set_threads", lambda _: None)  # this process has a pool
    (path := tmp_path / "mine.py").write_text(ASYNCHRONOUS)
    engine = ProgramEngine(str(path))
    engine.build(Job(MODEL, Workload(MODEL.name, "", 8, MODEL.optimizer, "fp32", 1), "cpu", "float32"), {})
    engine.load(np.zeros((2, 8, 3, 32, 32), np.float32), np.zeros((2, 8), np.int64))
    engine.run_steps(0, 3)
    calls = engine._program.calls
    assert calls == ["wait", "step", "step", "step", "wait"]
    assert engine.loss() == 0.5
    assert calls[5:] == ["float"]
    engine.run_steps(3, 2)
    with pytest.raises(ConfigurationFailed, match=r"^mine\.py: train_step returned no loss: a device-side assert$"):
        engine.loss()


def test_defaults_of_types_are_those_of_the_user_until_a_check_changes_the_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polybench.engines.program.frameworks.set_threads", lambda _: None)  # this process has a pool
    changes: list[str] = []
    monkeypatch.setattr("polybench.engines.program.frameworks.set_default_dtype", changes.append)
    (path := tmp_path / "mine.py").write_text(f'DEVICE = "cpu"\n{PROGRAM}')
    engine = ProgramEngine(str(path))
    for device, dtype in (("cuda:0", "float32"), ("cpu", "float64"), ("cpu", "float32")):
        job = Job(MODEL, Workload(MODEL.name, "", 8, MODEL.optimizer, "fp32", 1), device, dtype)
        engine.build(job, initial_weights(MODEL, 0))
        assert f'DEVICE = "{device}"' in engine.program
        assert f'DTYPE = "{dtype}"' in engine.program
    assert changes == ["float64", "float32"]


LEAK = 100_000
"""Bytes that a step retains."""
LEAKS = {
    "one.py": PROGRAM,
    "two.py": PROGRAM.replace(STEP, f"kept = []\n{STEP}    kept.append(np.ones({LEAK}, np.int8))\n"),
    "three.py": PROGRAM.replace(STEP, f"{STEP}    state.setdefault('kept', []).append(bytes({LEAK}))\n"),
    "four.py": PROGRAM.replace(STEP, f"{STEP}    cycle = [bytes({LEAK})]; cycle.append(cycle)\n"),
}
"""A program; with arrays in a global; with bytes in its state, which is new in each block; with garbage."""


def test_a_leak_is_named_and_garbage_is_not(tmp_path: Path) -> None:
    results = measure(tmp_path, *LEAKS.values(), parity=False, processes=3, cold_starts=0, metrics=False)
    growths = {one.configuration: one.memory.growth_bytes_per_step for one in results}
    if None in growths.values():
        pytest.skip("this C library does not count what malloc has in use")
    expected = {"one.py/cpu": 0, "two.py/cpu": LEAK, "three.py/cpu": LEAK, "four.py/cpu": 0}
    assert growths == pytest.approx(expected, abs=2000)
    named = {one.configuration for one in results if any("memory grows by 9" in text for text in one.warnings)}
    assert named == {"two.py/cpu", "three.py/cpu"}


NARROW = "images.reshape(len(images), -1).astype(DTYPE)"
TORCH = """
import torch

def setup(weights):
    model = torch.nn.Linear(3072, 10)
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

def load(images, labels):
    return torch.from_numpy(images.reshape(len(images), -1)).float(), torch.from_numpy(labels)

def train_step(state, batch):
    model, optimizer = state
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
    loss.backward()
    optimizer.step()
    return loss
"""


def float64_in(folder: Path, *texts: str) -> list[list[str]]:
    """Return the tensors of float64 that warnings of these programs name."""
    start = "float64 in a training in float32: "
    results = measure(folder, *texts, parity=False, cold_starts=0, metrics=False)
    assert [one.status for one in results] == ["ok"] * len(texts)
    found = [[text.removeprefix(start).partition(";")[0] for text in one.warnings if start in text] for one in results]
    return [names[0].split(", ") if names else [] for names in found]


def test_float64_in_a_program_in_numpy_is_named(tmp_path: Path) -> None:
    wide_batch = PROGRAM.replace(NARROW, NARROW.replace(".astype(DTYPE)", "* np.float64(1)"))
    wide_weight = PROGRAM.replace('state["velocity"][name] = 0.9', 'state["velocity"][name] = np.float64(0.9)')
    clean, batch, weight = float64_in(tmp_path, PROGRAM, wide_batch, wide_weight)
    assert clean == []
    assert "batch[0]" in batch
    assert {"state['velocity']['dense.weight']", "state['weights']['dense.weight']"} <= {*weight}
    assert "batch[0]" not in weight


@pytest.mark.wide  # engines/shared/test_float64 has the names in PyTorch
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_float64_in_a_program_in_pytorch_is_named(tmp_path: Path) -> None:
    wide = TORCH.replace("(3072, 10)", "(3072, 10).double()").replace(".float()", ".double()")
    promoted = TORCH.replace("model(batch[0])", "model(batch[0]) * torch.ones(10, dtype=torch.float64)")
    clean, model, loss = float64_in(tmp_path, TORCH, wide, promoted)
    assert clean == []
    assert model[:2] == ["state[0].weight", "state[0].bias"]
    assert loss == ["loss"]


OWN = "state = [0]\ndef setup(): return state\ndef load(x, y): return x\ndef train_step(s, b): return b.mean()\n"
"""A program of another network."""


def test_a_program_of_another_network_needs_no_parity(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"one\.py is not checked: its setup\(\) takes no weights"):
        resolve(study(tmp_path, OWN))
    with pytest.raises(
        BadInput, match=r"one\.py is not checked: mnist-mlp has dropout, and a program draws masks of its"
    ):
        resolve(study(tmp_path, PROGRAM, model="mnist-mlp"))
    one, two = measure(tmp_path, OWN, PROGRAM, parity=False)
    assert (one.status, one.parity.status) == ("ok", "skipped")
    assert two.vs_baseline is not None or one.vs_baseline is not None


def test_a_cached_check_is_that_of_the_same_text(tmp_path: Path) -> None:
    def checked_again(text: str) -> str | None:
        folder = tmp_path / "programs"
        folder.mkdir(exist_ok=True)
        store = Store(tmp_path / "results")
        measured = run_study(study(folder, text), NullProgress(), store=store)
        return measured.results[0].parity.checked_at if measured.results[0].parity.status == "pass" else None

    first = checked_again(PROGRAM)
    assert first is not None
    assert checked_again(PROGRAM) == first
    wrong = PROGRAM.replace(*MISTAKES["another momentum"])
    assert checked_again(wrong) is None


def test_an_anonymous_study_has_neither_path_nor_text_of_a_program(tmp_path: Path) -> None:
    store = Store(tmp_path / "results")
    named = run_study(study(tmp_path, OWN, parity=False), NullProgress(), store=None)
    header = new_header(anonymous=True)
    run_study(study(tmp_path, OWN, parity=False), NullProgress(), store=store, header=header)
    (log,) = store.folder.glob("*.jsonl")
    for text in (log.read_text(), msgspec.json.encode(anonymize(named)).decode()):
        assert "one.py/cpu" in text
        assert str(tmp_path) not in text
        assert "b.mean" not in text


def test_names_of_programs() -> None:
    assert EngineName.parse("./a+b/mine.py@old") == EngineName("mine.py", (), "old")
    assert EngineName.parse("mine.py") == EngineName("mine.py")
    assert str(EngineName.parse("/x@y/mine.py")) == "mine.py"
    assert program_paths(("torch", "./mine.py", "./mine.py@old", "../other.py")) == {
        "mine.py": "./mine.py",
        "other.py": "../other.py",
    }
    with pytest.raises(BadInput, match=r"\./mine\.py and b/mine\.py have the same name, mine\.py: rename one of them"):
        program_paths(("./mine.py", "b/mine.py"))
    with pytest.raises(BadInput, match=r"a b\.py: expected a file name of letters, digits"):
        program_paths(("./a b.py",))


PIPELINE = """

def batches(images, labels, order):
    for chosen in order:
        yield load((images[chosen] / 255).astype(DTYPE), labels[chosen])
"""
PIPELINES = {
    "pass": PIPELINE,
    "fail": PIPELINE.replace("labels[chosen]", "labels[chosen[::-1]]"),
    "batches ended early: expected": PIPELINE.replace("in order", "in order[:1]"),
    "ValueError in batches: no file": PIPELINE.replace("    for", "    raise ValueError('no file')\n    for"),
}


def test_the_pipeline_of_a_program_is_timed_alone_and_while_it_trains(tmp_path: Path) -> None:
    text = PROGRAM + PIPELINE.replace("        yield", "        __import__('time').sleep(0.005)\n        yield")
    (result,) = measure(tmp_path, text, input="pipeline", steps_per_round=4)
    assert result.parity.status == "pass", result.parity.reason
    assert result.pipeline is not None
    assert result.pipeline.data_wait_seconds_per_step is not None
    assert result.pipeline.data_wait_seconds_per_step >= 0.005
    assert result.pipeline.pipeline_items_per_second is not None
    assert result.pipeline.pipeline_items_per_second < 16 / 0.005
    assert result.step_time is not None
    assert result.step_time.mean > 0.005


def test_wrong_batches_of_a_pipeline_are_found(tmp_path: Path) -> None:
    without_float64 = [text.replace("DTYPE", "NUMBERS") for text in (PROGRAM, without(PROGRAM, "weights"))]
    wrong = PIPELINES["fail"].replace("DTYPE", "NUMBERS")
    texts = [*(PROGRAM + pipeline for pipeline in PIPELINES.values()), *(text + wrong for text in without_float64)]
    results = check(tmp_path, *texts, input="pipeline")
    for expected, result in zip([*PIPELINES, "fail", "fail"], results, strict=True):
        assert result.parity.status == expected or (result.reason or "").startswith(expected), result.reason
    with pytest.raises(BadInput, match=r"--augment: one\.py is not checked, because its pipeline draws"):
        resolve(study(tmp_path, PROGRAM + PIPELINE, input="pipeline", augment=True))
    resolve(study(tmp_path, PROGRAM + PIPELINE, input="pipeline", augment=True, parity=False))


def test_a_pipeline_that_is_started_again_begins_with_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polybench.engines.program.frameworks.set_threads", lambda _: None)  # this process has a pool
    (path := tmp_path / "mine.py").write_text(PROGRAM + PIPELINE)
    random = np.random.default_rng(0)
    images, labels = random.integers(256, size=(40, 3, 32, 32), dtype=np.uint8), random.integers(10, size=40)
    order = random.permutation(40).reshape(5, 8)
    engine = ProgramEngine(str(path))
    job = Job(MODEL, Workload(MODEL.name, "", 8, MODEL.optimizer, "fp32", 1), "cpu", "float64")
    losses = []
    for by_pipeline in (True, False):
        engine.build(job, initial_weights(MODEL, 0))
        if by_pipeline:
            engine.open_pipeline(PipelineInput(images, labels, order, None, 0))
        else:
            engine.load(images[order] / 255, labels[order])
        engine.run_steps(3, 1)
        losses.append(engine.loss())
    assert losses[0] == losses[1]


def test_a_program_runs_on_this_machine_and_with_preloaded_data_only(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"one\.py: programs of yours run on this machine only: omit them, or --on"):
        check_remote(study(tmp_path, PROGRAM))
    with pytest.raises(BadInput, match=r"--input pipeline: one\.py has no pipeline"):
        resolve(study(tmp_path, PROGRAM, input="pipeline"))


def test_a_program_that_a_file_names_needs_permission(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(PROGRAM)
    (file := tmp_path / "study.toml").write_text(
        f'engines = ["{tmp_path}/one.py"]\nmodel = "lenet"\ndevices = ["cpu"]\n'
    )
    expected = f"runs {tmp_path}/one.py with your rights: read what they do, then add --allow-programs"
    assert expected in refused("run", file)
    assert "one.py" in printed("run", file, "--allow-programs", "--dry-run")
    assert "fake" in printed("run", file, "--engines", "fake", "--dry-run")


def test_a_resumed_study_needs_permission_and_the_same_program(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    store = Store(tmp_path / "results")
    begun = study(folder, OWN, model="lenet", parity=False, cold_starts=0, processes=2)
    run_study(begun, NullProgress(), store=store)
    (log,) = store.folder.glob("*.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if json.loads(line)["event"] == "process_start"]
    log.write_bytes(b"".join(lines[: starts[1] + 1]))
    assert "add --allow-programs" in refused("resume", log.stem, "--results", store.folder)
    (folder / "one.py").write_text(OWN.replace("[0]", "[1]"))
    again = refused("resume", log.stem, "--results", store.folder, "--allow-programs")
    assert again.startswith(f"cannot resume {log.stem}: the loaded code changed: ")
