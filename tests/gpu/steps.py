"""The steps of `make gpu`: commands, time limits, and how their results are read.

The most important steps come first, because the time may run out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from polybench.networks import MODELS
from tests.gpu import summary_lines
from tests.gpu.subprocesses import Command
from tests.gpu.summary_lines import Finder

TABLED = ("lenet", "keras-cnn", "dlframeworks-cnn", "resnet32", "small-vgg")
"""The largest network, whose parity check has a step of its own: with 16 cores it takes a minute."""
TESTS = {
    "torch": "test_on_torch.py",
    "jax": "test_on_jax.py",
    "nvml": "test_on_nvml.py",
    "tf": "test_on_tensorflow.py",
    "flux": "test_on_flux.py",
}
BATCHES = (1, 4, 16, 64, 256, 1024, 4096)
LEFT_MIB = 1024
"""GPU memory to leave: a CUDA context takes half of it, and lenet's preloaded epoch 586 MiB."""


class Here(NamedTuple):
    """The parts of the machine that steps depend on; a rehearsal without a GPU uses the engine `fake`."""

    engines: tuple[str, ...]
    device: str = "cuda"
    precisions: tuple[str, ...] = ("fp32", "tf32", "bf16")
    documents: str = "documents"

    @property
    def rehearsed(self) -> bool:
        """True for a rehearsal."""
        return self.device == "cpu"


class Step(NamedTuple):
    """Commands that run at the same time, within a time limit.

    `load`: arguments of `tests.gpu.gpu_load`, which runs at the same time.
    """

    name: str
    title: str
    seconds: float
    commands: tuple[Command, ...]
    finds: Finder
    load: tuple[str, ...] = ()


def steps(here: Here) -> Iterator[Step]:
    """Yield all steps in order."""
    for name, file in TESTS.items():
        if name in (*here.engines, "nvml"):
            yield Step(f"tests-{name}", f"Tests of {name}", 100, (_pytest(file),), summary_lines.tests)
    # Side by side, because nothing is timed.
    checks = tuple(_check(here, model) for model in MODELS)
    yield Step("parity", "Parity on the GPU", 110, checks, summary_lines.parity_results)
    devices = ("cpu",) if here.rehearsed else ("cpu", here.device)
    for model in TABLED:
        asked_of = ("--model", model, "--quick", *(("--no-parity",) if model == "small-vgg" else ()))
        command = _measure(here, "compare", model, here.engines, devices, asked_of)
        yield Step(f"table-{model}", f"{model}: CPU against CUDA", 45, (command,), summary_lines.speeds)
    ways = ("fake", "fake+slow") if here.rehearsed else _ways(here.engines)
    wide = ("--precision", ",".join(here.precisions), "--quick", "--budget", "12s")
    command = _measure(here, "compare", "variants", ways, (here.device,), wide)
    yield Step("variants", "Variants and precisions", 70, (command,), summary_lines.speeds)
    for name, example in (("flux-tutorial", "flux_tutorial"), ("dlframeworks-study", "dlframeworks_cnn")):
        chosen = ("--quick", "--budget", "5s", "--no-parity")
        command = _measure(here, "run", name, here.engines, (here.device,), (f"examples/{example}.toml", *chosen))
        yield Step(name, f"Published results: {name}", 40, (command,), summary_lines.speeds)
    first = "fake+crash" if here.rehearsed else "torch"
    for name, engines, title, finds, load in (
        (
            "memory",
            (first,),
            "Out of memory",
            summary_lines.one_fails_and_the_next_runs,
            ("--leave", str(LEFT_MIB)),
        ),
        (
            "background load",
            here.engines[:1],
            "Another process on the GPU",
            summary_lines.load_is_reported,
            ("--busy",),
        ),
    ):
        both = ("cpu",) if here.rehearsed else (here.device, "cpu") if name == "memory" else (here.device,)
        asked = (*engines, "fake") if here.rehearsed else engines
        command = _measure(here, "compare", name, asked, both, ("--quick", "--budget", "4s", "--no-parity"))
        yield Step(name, title, 40, (command,), finds, () if here.rehearsed else load)
    sizes = BATCHES[:2] if here.rehearsed else BATCHES
    graphs = [way for way in ways if way in ("torch", "torch+cudagraph", "jax", "fake")]
    asked_of = (
        "--batch-size",
        ",".join(map(str, sizes)),
        "--processes",
        "1",
        "--budget",
        "14s",
        "--no-parity",
    )
    command = _measure(here, "sweep", "sweep", graphs, (here.device,), asked_of)
    yield Step("sweep", "Launch overhead and compute", 120, (command,), summary_lines.swept)


def _ways(engines: Sequence[str]) -> tuple[str, ...]:
    """Return the variants that a GPU affects most, of the installed engines."""
    wanted = (
        "torch",
        "torch+channels_last",
        "torch+compile",
        "torch+cudagraph",
        "jax",
        "tf",
        "tf+xla",
        "flux",
    )
    return tuple(way for way in wanted if way.partition("+")[0] in engines)


def _pytest(file: str) -> Command:
    options = ("-q", "-rs", "-m", "gpu", "-p", "no:cacheprovider", "--override-ini=addopts=--strict-markers")
    return Command("tests", ("pytest", f"tests/gpu/{file}", *options, "--gpu-report={folder}/tests.jsonl"))


def _check(here: Here, model: str) -> Command:
    asked = ("parity", "--model", model, "--engines", ",".join(here.engines), "--devices", here.device)
    # Nothing is timed, and all networks run at the same time.
    precisions = ("--precision", ",".join(here.precisions), "--threads", "2")
    return Command(model, ("polybench", *asked, *precisions, *_SAVED))


def _measure(
    here: Here,
    verb: str,
    name: str,
    engines: Sequence[str],
    devices: Sequence[str],
    options: tuple[str, ...],
) -> Command:
    where = ("--engines", ",".join(engines), "--devices", ",".join(devices), "--results", here.documents)
    least = ("--rounds-per-process", "1", "--steps-per-round", "3") if here.rehearsed else ()
    return Command(name, ("polybench", verb, *options, *where, *least, *_SAVED))


_SAVED = ("--anonymous", "--verbose", "--format", "json", "--output", "{folder}/{name}.json")
