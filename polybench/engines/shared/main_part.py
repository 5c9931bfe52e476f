"""Main parts of a program whose functions an emitter has written: a whole training, or a network with its weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from polybench.engines.job import Job
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK


class MainPart(NamedTuple):
    """Lines at the end of a program, after those that set up the framework.

    Attributes:
        text: the code.
        usage: how to run it, for the docstring.
        first: lines before all others, after the docstring.
        libraries: in Julia, the lines that load the packages that it needs.
    """

    text: str = ""
    usage: str = ""
    first: Sequence[str] = ()
    libraries: Sequence[str] = ()


NO_MAIN = MainPart()
"""Of a program that another one imports."""

_USAGE = """    python THIS_FILE initial_state.npz FOLDER

initial_state.npz has the initial weights and the inputs of each batch; it comes from
`polybench export --weights`. FOLDER has the data, as `export --train -o` writes it."""

NETWORK = MainPart("""with np.load(Path(__file__).with_suffix(".npz")) as file:
    network = setup({name: file[name] for name in file}).model""")
"""Makes `network`, with the weights beside the program."""


def training(
    job: Job, steps: int, settings: Sequence[str], synchronize: str, *, wait: str = "", clock: bool = False
) -> MainPart:
    """Return the training that polybench times: `steps` steps after the untimed ones.

    `settings` are lines that set up the framework. With `synchronize`, a call, all steps are timed together;
    otherwise the call `wait` ends each step of an asynchronous framework. With `clock`, the program prints when each
    phase of its start has ended, by the system's monotonic clock.
    """

    def tick(phase: str) -> list[str]:
        return [f'    clock.append(("{phase}", time.monotonic()))'] if clock else []

    has_images = len(job.model.input_shape) == 3
    printed = '"clock": clock, ' if clock else ""
    text = "\n".join([
        f"UNTIMED_STEPS, STEPS = {WARMUP_STEPS_PER_BLOCK}, {steps}",
        "",
        "",
        *(_read_images(job) if has_images else _READ_SEQUENCES),
        "",
        "",
        'if __name__ == "__main__":',
        *tick("import"),
        *(f"    {line}" for line in settings),
        "    start, folder = np.load(sys.argv[1]), Path(sys.argv[2])",
        "    inputs, labels = read_data(folder)",
        '    batches = [load(inputs[chosen], labels[chosen]) for chosen in start["batches"]]',
        *tick("data"),
        '    state = setup({name: start[name] for name in start if name != "batches"})',
        *(f"    {line}" for line in (_TIMED_START if clock else _START)),
        "    timed = batches[UNTIMED_STEPS : UNTIMED_STEPS + STEPS]",
        *(f"    {line}" for line in (_timed_together(synchronize) if synchronize else _timed_steps(wait))),
        f'    print(json.dumps({{{printed}"step_seconds": seconds, "losses": losses}}))',
    ])  # fmt: skip
    return MainPart(text, _USAGE, _CLOCK if clock else ())


_READ_SEQUENCES = (
    "def read_data(folder):",
    '    """Read the sequences and labels that `polybench export` has written."""',
    '    labels = np.load(folder / "labels.npy").astype(np.int64)',
    '    return np.load(folder / "tokens.npy"), labels',
)
_CLOCK = ("import time", "", 'clock = [("process", time.monotonic())]')
_START = ("losses = [float(train_step(state, batch)) for batch in batches[:UNTIMED_STEPS]]",)
_TIMED_START = (
    'clock.append(("build", time.monotonic()))',
    "losses = []",
    'for phase, batch in zip(("first_step", "second_step"), batches[:UNTIMED_STEPS], strict=True):',
    "    losses.append(float(train_step(state, batch)))",
    "    clock.append((phase, time.monotonic()))",
)


def _timed_steps(wait: str) -> Iterator[str]:
    yield "seconds = []"
    yield "for batch in timed:"
    yield "    begin = time.perf_counter()"
    yield "    loss = train_step(state, batch)"
    yield from [f"    {wait}"] if wait else []
    yield "    seconds.append(time.perf_counter() - begin)"
    yield "    losses.append(float(loss))"


def _timed_together(synchronize: str) -> Iterator[str]:
    yield "# A GPU is not synchronized after each step: all steps have one time."
    yield synchronize
    yield "begin = time.perf_counter()"
    yield "timed_losses = [train_step(state, batch) for batch in timed]"
    yield synchronize
    yield "seconds = [(time.perf_counter() - begin) / STEPS]"
    yield "losses += map(float, timed_losses)"


def _read_images(job: Job) -> Iterator[str]:
    shape = job.model.input_shape
    yield "def read_data(folder):"
    yield '    """Read images in 0..1 and labels from files in the format of CIFAR-10."""'
    yield '    files = [np.fromfile(folder / f"data_batch_{n}.bin", np.uint8) for n in range(1, 6)]'
    yield f"    records = np.concatenate(files).reshape(-1, {1 + math.prod(shape)})"
    yield f"    images = records[:, 1:].reshape(-1, {', '.join(map(str, shape))})"
    yield "    return images.astype(np.float32) / 255, records[:, 0].astype(np.int64)"
