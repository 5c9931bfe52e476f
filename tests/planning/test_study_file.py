"""Study files: every study can be written and read back, and every error names its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.errors import BadInput
from polybench.planning import study_file
from polybench.planning.study_file import parse, read
from polybench.results.document import study_toml
from polybench.schema.options import QUICK_BUDGET, Study


def finite(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, exclude_max=True)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


counts = st.integers(1, 10**9)
workers = st.integers(1, 10**5)
configurations = st.sampled_from(["fake/cpu", "torch+compile/cpu", "fake/cuda:1", "torch+compile/cuda:1"])
studies = st.builds(
    Study,
    engines=st.just(("fake", "torch+compile")),
    devices=st.just(("cpu", "cuda:1")),
    data=st.text(st.characters(exclude_categories=["Cs"])),  # TOML has no lone surrogates
    batch_size=maybe(counts),
    optimizer=maybe(st.just("momentum")),
    learning_rate=maybe(finite(5e-324, 1e30)),
    momentum=maybe(st.floats(0, 1, exclude_max=True)),
    precision=st.sampled_from(["fp32", "bf16"]),
    threads=maybe(workers),
    oversubscribe=st.just(True),
    seed=st.integers(0, 2**63 - 1),
    processes=workers,
    rounds_per_process=maybe(counts),
    steps_per_round=maybe(counts),
    margin=finite(1e-6, 1),
    budget=finite(5e-324, 1e9),
    timeout=finite(5e-324, 1e9),
    parity=st.booleans(),
    metrics=st.booleans(),
    parity_steps=workers,
    cold_starts=st.integers(0, 1000),
    baseline=maybe(configurations),
    prices=st.dictionaries(st.sampled_from(["cpu", "cpu-16", "cuda:1"]), finite(1e-100, 1e100)),
    injected_delays=st.dictionaries(configurations, finite(1e-100, 1e100)),
)


@given(studies)
def test_a_saved_study_reads_back_as_the_same_study(study: Study) -> None:
    assert parse(study_toml(study), "recorded") == study


def test_the_default_study_reads_back_unchanged() -> None:
    assert parse(study_toml(Study()), "recorded") == Study()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.toml"


BAD = {
    "batchsize = 8": "1: unknown key 'batchsize'; did you mean 'batch_size'?",
    '# why\n\nengines = [\n  "fake",\n]\nbatch_size = 0': "6: batch_size: Expected `int` >= 1",
    'engines = [\n  "fake",\n  7,\n]': "1: engines[1]: Expected `str`, got `int`",
    "engines = []": "1: no engines given",
    'engines = ["fake"]\n\nengines = ["torch"]': "3: not valid TOML: Cannot overwrite a value",
    'seed = 1\nengines = [\n"fake"\n': "2: not valid TOML: Unclosed array",
    'seed = 1\n\ndata = """\nit': "3: not valid TOML: Unterminated string",
    "seed = 1\nmodel = lenet": "2: not valid TOML: Invalid value, at column 9",
    "seed = 1\nmodel = 'lennet'": "2: unknown model 'lennet'; did you mean 'lenet'?",
    'engines = ["fake"]\n[sweep]\ntreads = [1, 2]': "2: unknown field of a sweep 'treads'",
    'engines = ["fake"]\n[sweep]\nloader_workers = [0, 1]': "2: --loader-workers ",
    'engines = ["fake"]\n[sweep]\nthreads = ["a"]': "Expected",
    'engines = ["fake"]\n[sweep]\nbatch_size = [true]': "3: batch_size has true: expected integers",
    'engines = ["fake"]\n[sweep]\nbatch_size = [8, false]': "3: batch_size has false",
    'engines = ["fake"]\n[sweep]\nthreads = [true, 2]': "3: threads has true",
    'engines = ["fake"]\nbatch_size = true': "Expected `int",
    'engines = ["fake"]\nseed = true': "Expected `int",
    "engines = ['fake', 'torhc']": "1: unknown engine 'torhc'; did you mean 'torch'?",
    "devices = ['gpu']": "1: unknown device 'gpu'",
    "precision = 'tf32'\ndevices = ['cpu']": "1: precision tf32 exists on cuda only",
    "optimizer = 'adamm'": "1: ",
    "baseline = 'fake/cpu'\nengines = ['torch']\ndevices = ['cpu']": "1: unknown configuration 'fake/cpu'",
    "data = '''\nbudget = 1\n'''\nbudget = -1": "4: budget: Expected `float` > 0",
    "seed = 1\r\nbudget = -1\r\n": "2: budget: ",
    "budget = inf": "1: budget",
    "learning_rate = nan": "1: learning_rate",
    "seed = 1\nthreads = 1000000": "2: threads: Expected `int` <= 100000",
    "seed = 1\nthreads = 99999": "2: --threads 99999 on ",
    "batch_size = 1000000000000": "1: batch_size: Expected",
    "processes = 1000000000000": "1: processes: Expected",
    "steps_per_round = 1000000000000": "1: steps_per_round: Expected",
    "rounds_per_process = 1000000000000": "1: rounds_per_process: Expected",
    "epochs = 1000000000000": "1: epochs: Expected",
    "parity_steps = 1000000000000": "1: parity_steps: Expected",
    "replicas = [1, 1000000000000]": "1: replicas[1]: Expected",
    "input = 'pipeline'\nloader_workers = 1000000000000": "2: loader_workers: Expected",
    "budget = 1e300": "1: budget: Expected",
    "timeout = 1e300": "1: timeout: Expected",
    "wait_idle = 1e300": "1: wait_idle: Expected",
    "margin = 1e-300": "1: margin: Expected",
    "tolerance = 1e-300": "1: tolerance: Expected",
    "learning_rate = 1e300": "1: learning_rate: Expected",
    "weight_decay = 1e300": "1: weight_decay: Expected",
    "lr_schedule = [[1000000000000000, 0.1]]": "1: lr_schedule",
    "[prices]\ncpu = 1e300": "2: prices: Expected",
    "engines = ['fake']\n[sweep]\nthreads = [1, 100000000000000000000000]": "2: --threads 1000",
    "seed = 99999999999999999999": "1: seed: ",
    "parity = 'yes'": "1: parity: Expected `bool`, got `str`",
    "seed = 1\n[prices]\n\ncpu = 0.24\ncuda = 'much'": "5: prices: Expected `float`, got `str`",
    "[prices]\ngpu = 1": "2: unknown device 'gpu'",
    "prices.cpu = 1\nprices.cuda = 0": "2: prices: Expected a number above 0",
    "prices = {cpu = 1, cuda = -inf}": "1: prices",
    "[prices]\ncpu = inf": "2: prices",
    "devices = ['cpu']\n[prices]\ncuda = 1": "3: unknown device with a price 'cuda'",
    "devices = ['cpu']\n[prices]\ncpu-2 = 1\ncuda-2 = 1": "4: unknown device with a price 'cuda'",
    "[prices]\ncpu-2 = 1\ncpu-two = 1": "3: unknown device 'cpu-two'",
    "prices = 3": "1: prices: Expected `object`, got `int`",
    "seed = 1\n[pricess]\ncpu = 1": "2: unknown key 'pricess'; did you mean 'prices'",
    "[batch_size]": "1: batch_size: ",
    "seed = 1\nlayers = []": "2: this is a network file, not a study file: use polybench compare --model ",
    "seed = 1\nmodel = 'no.toml'": "2: cannot read ",
    "[model]\nclasses = 2": "1: input is missing: required are classes, input, layers",
    "[quick_overrides]\nmodel = 'no.toml'": "2: cannot read ",
    "seed = 1\nmodel = 3": "2: model: Expected `str | object`, got `int`",
    "quick = 'yes'": "1: quick: Expected `bool`",
    "seed = 1\ntitle = 3": "2: title: Expected `str | null`",
    "seed = 1\nquick_overrides = 3": "2: quick_overrides: Expected `object`",
    "[quick_overrides]\nseed = 1\nbatchsize = 8": "3: unknown key of quick_overrides 'batchsize'; did you mean",
    "batch_size = 8\n[quick_overrides]\nseed = 1\nbatch_size = 0": "4: batch_size: Expected `int` >= 1",
    "batch_size = 8\n[quick_overrides.batch_size]\nx = 1": "3: batch_size: Expected `int | null`, got `object`",
    "seed = 1\npublished = 'it'": "2: cannot read ",
    "": "is empty",
    "# only a comment": "is empty",
    "seed = 1\nx = " + "[" * 5000: "2: not valid TOML: maximum recursion depth",
    "seed = " + "9" * 5000: "1: not valid TOML: ",
}


@pytest.mark.parametrize("content", BAD, ids=lambda content: content[:30])
def test_an_error_names_the_file_and_the_line(content: str, file: Path) -> None:
    file.write_bytes(content.encode())
    message = BAD[content]
    with pytest.raises(BadInput) as caught:
        read(file)
    if message[0].isdigit():
        assert str(caught.value).startswith(f"{file}:{message}")
    else:
        assert str(file.parent) in str(caught.value)
        assert message in str(caught.value)


def test_files_that_are_not_text_are_rejected(file: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*x\.toml: No such file"):
        read(file)
    with pytest.raises(BadInput, match=r"cannot read .*: Is a directory"):
        read(tmp_path)
    file.write_bytes(b"seed = 1 # \xff")
    with pytest.raises(BadInput, match="byte 11 is not UTF-8"):
        read(file)
    file.write_text("seed = 1", "utf-8-sig")
    assert read(file).study.seed == 1


def test_quick_works_as_a_key_and_as_an_option(file: Path) -> None:
    text = "batch_size = 64\nbudget = 30\n[prices]\ncpu = 1\ncuda = 2\n"
    text += "[quick_overrides]\nbatch_size = 8\nprices.cpu = 2\n"
    file.write_text(text)
    assert read(file).study == Study(batch_size=64, budget=30, prices={"cpu": 1, "cuda": 2})
    quick = Study(batch_size=8, budget=QUICK_BUDGET, processes=1, prices={"cpu": 2})
    assert read(file, quick=True).study == quick
    file.write_text("quick = true\n" + text)
    assert read(file).study == quick
    file.write_text("budget = 3")
    assert read(file, quick=True).study.budget == 3


def test_prices_may_name_missing_devices() -> None:
    assert parse("[prices]\ncpu = 1\n'cuda:7' = 2", "x").prices == {"cpu": 1, "cuda:7": 2}


NUMBERS = """
[one]
source = "a journal"
numbers = [
    {label = "Flux", hardware = "a CPU", quantity = "time", value = [1, 2.5], unit = "s"},
    {label = "Flux", hardware = "a GPU", quantity = "time", value = 3, unit = "s", source = "a blog"},
]
[two]
source = "a journal"
numbers = [{label = "Flux"}]
[three]
source = "a journal"
model = "lenet"
batch_size = 64
[[three.numbers]]
label = "tf"
hardware = "a CPU"
quantity = "time of a step"
value = 3
unit = "s"
configuration = "tf/cpu"
metric = "step_time"
[[three.numbers]]
label = "tf"
hardware = "a GPU"
quantity = "images a second"
value = 3
unit = ""
configuration = "tf/cuda"
metric = "throughput"
model = "dlframeworks-cnn"
augment = false
"""


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("metric = 'step_time'", r"step_time is compared in seconds, not in 'ms': write unit = \"s\""),
        ("metric = 'step'", r"Invalid enum value 'step'.*numbers\[0\]\.metric"),
    ],
)
def test_a_published_number_without_a_comparable_unit_is_rejected(file: Path, wrong: str, message: str) -> None:
    number = f"label = 'tf', hardware = '', quantity = '', value = 3, unit = 'ms', configuration = 'tf/cpu', {wrong}"
    (file.parent / study_file.REFERENCES).write_text(f"[one]\nsource = ''\nnumbers = [{{{number}}}]")
    file.write_text("published = 'one'")
    with pytest.raises(BadInput, match=message):
        read(file)


def test_published_numbers_are_read_next_to_the_file(file: Path) -> None:
    (file.parent / study_file.REFERENCES).write_text(NUMBERS)
    file.write_text("title = 'A'\npublished = 'one'")
    about = read(file).metadata
    assert about.title == "A"
    assert [number.value for number in about.published] == [(1, 2.5), 3]
    assert [number.source for number in about.published] == ["a journal", "a blog"]
    (below := file.parent / "below" / file.name).parent.mkdir()
    below.write_text("published = 'one'")
    assert read(below).metadata.published == about.published
    (below.parent / study_file.REFERENCES).write_text(NUMBERS.replace("a journal", "another journal"))
    assert read(below).metadata.published[0].source == "another journal"
    file.write_text("title = 'A'\npublished = 'on'")
    with pytest.raises(BadInput, match=rf"{file}:2: unknown publication in .* 'on'; did you mean 'one'"):
        read(file)
    file.write_text("published = 'three'")
    of_step, of_images = read(file).metadata.published
    assert (of_step.metric, of_step.model, of_step.batch_size, of_step.augment) == ("step_time", "lenet", 64, None)
    assert (of_images.metric, of_images.model, of_images.augment) == ("throughput", "dlframeworks-cnn", False)
    file.write_text("published = 'two'")
    with pytest.raises(BadInput, match=r"x\.toml:1: .*published\.toml:8: .*missing required field .*numbers\[0\]"):
        read(file)
