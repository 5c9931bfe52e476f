"""What `make gpu` does, step by step: commands, how long they may take, what is read from what they leave.

The most telling steps come first, since a later one may find no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from polybench.models import MODELS
from tests.gpu import findings
from tests.gpu.findings import Finder
from tests.gpu.running import Command

TABLED = ("lenet", "keras-cnn", "rosetta", "resnet32", "smallvgg")
"""Identity of the largest is in its own step: with 16 cores it takes a minute."""
TESTS = {
    "torch": "test_on_torch.py",
    "jax": "test_on_jax.py",
    "nvml": "test_on_nvml.py",
    "tf": "test_on_tensorflow.py",
    "flux": "test_on_flux.py",
}
BATCHES = (1, 4, 16, 64, 256, 1024, 4096)
LEFT_MIB = 1024
"""A CUDA context takes half of it, and lenet's preloaded epoch 586 MiB."""


class Here(NamedTuple):
    """The machine, as far as steps depend on it; in a rehearsal without a GPU the engine is `fake`."""

    engines: tuple[str, ...]
    device: str = "cuda"
    precisions: tuple[str, ...] = ("fp32", "tf32", "bf16")
    documents: str = "documents"

    @property
    def rehearsed(self) -> bool:
        """Whether it is a rehearsal."""
        return self.device == "cpu"


class Step(NamedTuple):
    """Commands that run at the same time, in at most so many seconds.

    `stranger`: arguments of `tests.gpu.hog`, which runs meanwhile.
    """

    name: str
    title: str
    seconds: float
    commands: tuple[Command, ...]
    finds: Finder
    stranger: tuple[str, ...] = ()


def steps(here: Here) -> Iterator[Step]:
    """All of them, in order."""
    for name, file in TESTS.items():
        if name in (*here.engines, "nvml"):
            yield Step(f"tests-{name}", f"Tests of {name}", 100, (_pytest(file),), findings.tests)
    # Side by side: nothing of it is timed.
    checks = tuple(_check(here, model) for model in MODELS)
    yield Step("identity", "Identity on the GPU", 110, checks, findings.identity)
    devices = ("cpu",) if here.rehearsed else ("cpu", here.device)
    for model in TABLED:
        asked_of = ("--model", model, "--quick", *(("--no-parity",) if model == "smallvgg" else ()))
        command = _measure(here, "compare", model, here.engines, devices, asked_of)
        yield Step(f"table-{model}", f"{model}: CPU against CUDA", 45, (command,), findings.speeds)
    ways = ("fake", "fake+slow") if here.rehearsed else _ways(here.engines)
    wide = ("--precision", ",".join(here.precisions), "--quick", "--budget", "12s")
    command = _measure(here, "compare", "variants", ways, (here.device,), wide)
    yield Step("variants", "Variants and precisions", 70, (command,), findings.speeds)
    for name, example in (("flux-tutorial", "flux_tutorial"), ("rosetta-study", "rosetta")):
        chosen = ("--quick", "--budget", "5s", "--no-parity")
        command = _measure(
            here, "run", name, here.engines, (here.device,), (f"examples/{example}.toml", *chosen)
        )
        yield Step(name, f"Beside what was published: {name}", 40, (command,), findings.speeds)
    first = "fake+crash" if here.rehearsed else "torch"
    for name, engines, told, finds, stranger in (
        (
            "memory",
            (first,),
            "Out of memory",
            findings.one_fails_and_the_next_runs,
            ("--leave", str(LEFT_MIB)),
        ),
        (
            "stranger",
            here.engines[:1],
            "Another process on the GPU",
            findings.stranger_is_noticed,
            ("--busy",),
        ),
    ):
        both = ("cpu",) if here.rehearsed else (here.device, "cpu") if name == "memory" else (here.device,)
        asked = (*engines, "fake") if here.rehearsed else engines
        command = _measure(here, "compare", name, asked, both, ("--quick", "--budget", "4s", "--no-parity"))
        yield Step(name, told, 40, (command,), finds, () if here.rehearsed else stranger)
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
    yield Step("sweep", "Launch overhead against arithmetic", 120, (command,), findings.swept)


def _ways(engines: Sequence[str]) -> tuple[str, ...]:
    """The variants that a GPU changes most, of the engines that are here."""
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
    # Nothing of it is timed, and all networks are at it.
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
    least = ("--rounds", "1", "--steps", "3") if here.rehearsed else ()
    return Command(name, ("polybench", verb, *options, *where, *least, *_SAVED))


_SAVED = ("--anonymous", "--verbose", "--format", "json", "--output", "{folder}/{name}.json")
