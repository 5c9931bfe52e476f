"""What rounding does: the same training in two orders of summation, in four types, for networks of six kinds.

`python -m tests.trace.rounding` prints the largest errors, from which the constants of `polybench/trace/rounding.py`
follow, and how many pairs agree. `python -m tests.trace.rounding float32 float64` measures these types only.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

import polybench
from polybench.schema.trace import Cause, FirstDifference
from polybench.trace.causes import find_causes
from polybench.trace.comparison import compare_step, pair
from polybench.trace.file import Trace
from polybench.trace.rounding import Judge, Judgement


class Case(NamedTuple):
    """A training, which a pair computes in two orders."""

    network: str
    optimizer: str
    dtype: str
    order: str


class _Residual(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class _Attention(nn.Module):
    """Attention over the pixels, with a residual connection."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm, self.inputs, self.output = nn.LayerNorm(size), nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.inputs(self.norm(x)).chunk(3, -1)
        shares = (query @ key.transpose(1, 2) / query.shape[-1] ** 0.5).softmax(-1)
        return x + self.output(shares @ value)


class _Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3)) if x.ndim == 4 else x.mean(1)


class _Pixels(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)


def _dense(*, norm: bool) -> nn.Module:
    layers = [
        layer
        for inputs in (192, 32, 32)
        for layer in (nn.Linear(inputs, 32), *([nn.BatchNorm1d(32)] if norm else []), nn.ReLU())
    ]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(32, 5))


def _convolutional(*, norm: bool) -> nn.Module:
    norms = [nn.BatchNorm2d(6)] if norm else []
    first = (nn.Conv2d(3, 6, 3, padding=1), *norms, nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*first, nn.Conv2d(6, 8, 3), nn.ReLU(), _Mean(), nn.Linear(8, 20), nn.GELU(), nn.Linear(20, 5))


def _residual() -> nn.Module:
    def conv() -> tuple[nn.Module, nn.Module]:
        return nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)

    blocks = [layer for _ in range(3) for layer in (_Residual(*conv(), nn.ReLU(), *conv()), nn.ReLU())]
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), *blocks, _Mean(), nn.Linear(8, 5))


def _transformer() -> nn.Module:
    def dense() -> nn.Module:
        return _Residual(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    blocks = (_Attention(16), dense(), _Attention(16), dense())
    return nn.Sequential(_Pixels(), nn.Linear(3, 16), *blocks, _Mean(), nn.Linear(16, 5))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "dense": lambda: _dense(norm=False),
    "dense with batch norm": lambda: _dense(norm=True),
    "convolutional": lambda: _convolutional(norm=False),
    "convolutional with batch norm": lambda: _convolutional(norm=True),
    "residual with batch norm": _residual,
    "attention": _transformer,
}
OPTIMIZERS: dict[str, Callable[[Iterable[Tensor]], torch.optim.Optimizer]] = {
    "SGD": lambda weights: torch.optim.SGD(weights, 0.05, momentum=0.9),
    "Adam": lambda weights: torch.optim.Adam(weights, 1e-3),
}
TYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
ORDERS = ("other order of the batch", "channels last", "without oneDNN")


def cases() -> Iterator[Case]:
    """Iterate over 126 pairs without a difference: all orders with SGD, two with Adam, which overflows in float16."""
    for network, dtype in itertools.product(NETWORKS, TYPES):
        yield from (Case(network, "SGD", dtype, order) for order in ORDERS)
        yield from (Case(network, "Adam", dtype, order) for order in ORDERS if dtype != "float16")


def train(file: Path, case: Case, *, in_order: bool) -> None:
    """Train eleven steps of 16 images; record steps 0, 1, 2 and 10, with the batches in their usual order."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    channels_last, permuted = (not in_order and case.order == order for order in ("channels last", ORDERS[0]))
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = NETWORKS[case.network]().to(TYPES[case.dtype], memory_format=layout)  # type: ignore[call-overload]
    optimizer = OPTIMIZERS[case.optimizer](list(model.parameters()))
    with (
        torch.backends.mkldnn.flags(enabled=in_order or case.order != "without oneDNN"),
        polybench.record(file, model=model, optimizer=optimizer) as trace,
    ):
        for step in range(11):
            random = np.random.default_rng([step, 7])
            images = torch.from_numpy(random.normal(0.5, 0.3, (16, 3, 8, 8))).to(TYPES[case.dtype])
            labels = torch.from_numpy(random.integers(0, 4, 16))
            order = torch.from_numpy(random.permutation(16) if permuted else np.arange(16))
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[order].contiguous(memory_format=layout)), labels[order])
            loss.backward()
            optimizer.step()
            trace.step(loss=loss, batch=(images, labels))


class Outcome(NamedTuple):
    """The judgements of a pair, and the causes that were found, of which none is right."""

    judgements: list[Judgement]
    causes: list[Cause]

    @property
    def word(self) -> str:
        """The worst judgement."""
        words = {one.outcome for one in self.judgements}
        return next(word for word in ("differs", "cannot tell", "agrees") if word in words)


def compare(case: Case, folder: Path) -> Outcome:
    """Record a pair, and compare it."""
    files = []
    for in_order in (True, False):
        of = case._replace(order="") if in_order else case
        files.append(folder / f"{'+'.join(of)}.trace")
        if not files[-1].exists():
            train(files[-1], of, in_order=in_order)
    with Trace(files[0]) as a, Trace(files[1]) as b:
        comparison = pair(a, b, {})
        judgements = Judge(comparison, {step: compare_step(comparison, step) for step in a.steps}).judgements
        suspect = next((one for one in judgements if one.outcome != "agrees"), None)
        first = suspect and FirstDifference(suspect.step, suspect.kind, suspect.tensor, suspect.error)
        return Outcome(judgements, find_causes(comparison, first, None).causes)


def main() -> None:
    outcomes: Counter[tuple[str, str]] = Counter()
    largest: dict[tuple[str, str], float] = defaultdict(float)
    shares: dict[tuple[str, str], float] = defaultdict(float)
    with tempfile.TemporaryDirectory(prefix="polybench-rounding-") as folder:
        for case in (one for one in cases() if one.dtype in (sys.argv[1:] or TYPES)):
            outcome = compare(case, Path(folder))
            outcomes[case.dtype, outcome.word] += 1
            for one in outcome.judgements:
                key = case.dtype, one.kind
                largest[key] = max(largest[key], one.error)
                shares[key] = max(shares[key], one.error / one.explains if one.explains else 0.0)
            if outcome.word != "agrees" or outcome.causes:
                wrong = [one for one in outcome.judgements if one.outcome != "agrees"][:1]
                print(f"{', '.join(case)}: {outcome.word} {wrong} {outcome.causes}", flush=True)
    print("| type | kind | largest error | of what rounding may explain |\n|---|---|---|---|")
    for (dtype, kind), error in largest.items():
        print(f"| {dtype} | {kind} | {error:.1e} | {shares[dtype, kind]:.0%} |")
    for (dtype, word), count in outcomes.items():
        print(f"{dtype}: {word} {count}")


if __name__ == "__main__":
    main()
