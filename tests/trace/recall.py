"""How often `trace diff` is right: planted differences, alone and in pairs, and clean pairs, in three frameworks.

`python -m tests.trace.recall` records all programs, which takes some minutes, and prints the table of the guide.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from polybench.networks.model import Model
from polybench.schema.trace import TraceDiffDocument
from polybench.trace.diff import diff
from tests.trace.planted import CAUSES, LATER, LOCATED, MISSING, Located, Plant, base, network

FRAMEWORKS = {"torch": "PyTorch", "jax": "JAX", "keras": "Keras"}


class Program(NamedTuple):
    """A framework, and what is special about its training."""

    framework: str
    plants: tuple[Plant, ...] = ()

    @property
    def file(self) -> str:
        """The name of its trace, which the program in Keras reads."""
        return f"{self.framework}+{'+'.join(self.plants)}.trace"


class Case(NamedTuple):
    """Two programs, and the differences planted in the second one."""

    a: Program
    b: Program
    planted: tuple[Plant, ...] = ()


class Outcome(NamedTuple):
    """A case with its document; see the properties."""

    case: Case
    document: TraceDiffDocument

    @property
    def causes(self) -> list[str]:
        """The causes without conventions of Keras, which are true for all its programs."""
        return [one.cause for one in self.document.causes if not one.is_convention]

    @property
    def is_first(self) -> bool:
        """True if a planted difference is the first cause, or nothing was planted and there is no cause."""
        if not self.case.planted:
            return not self.causes
        return bool(self.causes) and any(CAUSES[plant] in self.causes[0] for plant in self.case.planted)

    @property
    def is_complete(self) -> bool:
        """True if all planted differences are named."""
        return all(any(CAUSES[plant] in cause for cause in self.causes) for plant in self.case.planted)

    @property
    def has_right_step(self) -> bool:
        """True if the first difference is at the first step of a planted difference, or at none."""
        first = self.document.first_difference
        steps = [LATER.get(plant, 0) for plant in self.case.planted]
        steps += [one.step for one in self.document.causes if one.is_convention]
        return (first and first.step) == min(steps, default=None)


def single_cases(
    frameworks: Iterable[str] = FRAMEWORKS, references: Sequence[str] = ("torch", "jax")
) -> Iterator[Case]:
    """Plant each difference alone in each framework, against programs in PyTorch and JAX."""
    for framework in frameworks:
        for plant in CAUSES:
            if plant not in MISSING[framework]:
                common = _common(framework, plant)
                for reference in references:
                    yield Case(Program(reference, common), Program(framework, (*common, plant)), (plant,))


def _common(framework: str, *plants: Plant) -> tuple[Plant, ...]:
    """Return what both programs have: Keras has no coupled decay."""
    common = base(*plants)
    return (*common, "no decay") if framework == "keras" and not {"adamw", "rmsprop"} & {*common} else common


def located_cases() -> Iterator[tuple[Located, Case]]:
    """Plant the differences that rounding must not hide, in PyTorch."""
    for one in LOCATED:
        yield one, Case(Program("torch", one.common), Program("torch", (*one.common, one.plant)), (one.plant,))


def paired_cases(count: int = 60) -> Iterator[Case]:
    """Plant two random differences in PyTorch or JAX, unless one of them removes the other.

    A broadcast is found only by itself: it follows from the loss and the gradients of the last layer alone.
    """
    choose = random.Random(0)
    while count:
        framework = choose.choice(["torch", "jax"])
        plants = tuple(choose.sample(sorted({*CAUSES} - MISSING[framework] - {"broadcast targets"}), 2))
        if not _excludes(*plants):
            common = base(*plants)
            yield Case(Program("torch", common), Program(framework, (*common, *plants)), plants)
            count -= 1


_SGD = {
    *("momentum", "dampening", "nesterov", "learning rate", "weight decay", "warm-up", "form of momentum"),
    *("other optimizer", "clipping in the optimizer", "clipping of each tensor in the optimizer"),
}
_EXCLUSIVE: tuple[set[Plant], ...] = (
    {"initial weights", "initial bias"},
    {"other order", "other order later", "labels"},
    {"scaled inputs", "shifted inputs", "mirrored inputs", "other inputs", "normalized inputs", "channels"},
    {"evaluation mode", "fixed statistics", "batch norm momentum", "biased variance"},
    {"bfloat16", "float16", "TF32"},
    {"other activation", "tanh for exact GELU"},
    {"pooling", "ties of max-pool"},
    {"learning rate", "warm-up", "other optimizer"},
    {
        *("clipping", "clipping of each tensor", "clipping of each value", "clipping in the optimizer"),
        *("clipping of each tensor in the optimizer", "loss scale", "sum of the loss"),
    },
)
"""Differences of one thing, of which a program has one."""


def _excludes(one: Plant, other: Plant) -> bool:
    bases = [base(one), base(other)]
    if any({one, other} <= group for group in _EXCLUSIVE) or (all(bases) and bases[0] != bases[1]):
        return True
    other_optimizer = {"adamw", "rmsprop"} & {*bases[0], *bases[1]}
    return bool(other_optimizer and {one, other} & _SGD) or {"other optimizer"} < {one, other} & _SGD


def clean_cases() -> Iterator[Case]:
    """Pair programs that compute the same, in two frameworks or with other settings on both sides."""
    common: tuple[tuple[Plant, ...], ...] = (
        *((), ("nesterov",), ("dampening",), ("adamw",), ("adamw", "coupled decay"), ("adamw", "amsgrad")),
        *(("rmsprop",), ("schedule",), ("coarse",), ("label smoothing",), ("pooling",), ("no norm",)),
    )
    for settings in common:
        for a, b in (("torch", "jax"), ("jax", "torch")):
            yield Case(Program(a, settings), Program(b, settings))
    yield Case(Program("torch"), Program("jax", ("labels in a column",)))
    yield Case(Program("torch", ("clipping",)), Program("jax", ("clipping in the optimizer",)))
    yield Case(
        Program("torch", ("no decay", "clipping of each tensor")),
        Program("keras", ("no decay", "clipping of each tensor in the optimizer", "labels in a column")),
    )
    for settings in ((), ("nesterov",), ("coarse",), ("label smoothing",), ("pooling",), ("missing activation",)):
        keras = ("no decay", *settings)
        yield Case(Program("jax", ("biased variance", *keras)), Program("keras", keras))
        yield Case(Program("torch", keras), Program("keras", keras))
        without = ("no norm", *keras)
        yield Case(Program("torch", without), Program("keras", without))


def record(programs: Iterable[Program], folder: Path) -> Mapping[Program, Path]:
    """Record each program once; those in Keras have a process of their own."""
    from tests.trace import jax_program, torch_program

    files = {program: folder / program.file for program in programs}
    train = {"torch": torch_program.train, "jax": jax_program.train}
    for program, file in files.items():
        if program.framework in train and not file.exists():
            train[program.framework](file, program.plants)
    keras = [file for program, file in files.items() if program.framework == "keras" and not file.exists()]
    if keras:
        command = [sys.executable, "-m", "tests.trace.keras_program", *map(str, keras)]
        done = subprocess.run(
            command, check=False, env=os.environ | {"KERAS_BACKEND": "tensorflow"}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    return files


def compare(cases: Iterable[Case], folder: Path) -> list[Outcome]:
    """Record and compare all cases."""
    cases = list(cases)
    files = record({program for case in cases for program in (case.a, case.b)}, folder)
    return [Outcome(case, diff(files[case.a], files[case.b], model=_network(case.a.plants))) for case in cases]


def _network(plants: Collection[Plant]) -> Model | None:
    """Return the network of a program; None for a regression, which has another one."""
    if "regression" in plants:
        return None
    return network(has_norm="no norm" not in plants, is_strided="strided" in plants)


def table(outcomes: Iterable[Outcome]) -> str:
    """Return the table of the guide: how often each planted difference was the first cause."""
    outcomes = list(outcomes)
    lines = [f"| planted | {' | '.join(FRAMEWORKS.values())} |", "|---|---|---|---|"]
    for plant in CAUSES:
        cells = []
        for framework in FRAMEWORKS:
            of_plant = [one for one in outcomes if one.case.planted == (plant,) and one.case.b.framework == framework]
            cells.append(f"{sum(one.is_first for one in of_plant)} of {len(of_plant)}" if of_plant else "")
        lines.append(f"| {plant} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="polybench-recall-") as folder:
        groups = {
            "alone": compare(single_cases(), Path(folder)),
            "in pairs": compare(paired_cases(), Path(folder)),
            "clean": compare(clean_cases(), Path(folder)),
        }
    print(table(groups["alone"]))
    for name, outcomes in groups.items():
        counts = [
            sum(map(bool, values))
            for values in zip(*((one.is_first, one.is_complete, one.has_right_step) for one in outcomes), strict=True)
        ]
        print(f"{name}: {len(outcomes)} cases; right first {counts[0]}, all named {counts[1]}, right step {counts[2]}")
        for one in outcomes:
            if not (one.is_first and one.has_right_step):
                print(f"  {one.case.a.file} {one.case.b.file}: {one.document.verdict}")


if __name__ == "__main__":
    main()
