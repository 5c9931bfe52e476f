"""Main parts of a program of Flux: a whole training, or a network with its weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from polybench.engines.flux.julia.environment import threads
from polybench.engines.job import Job
from polybench.engines.shared.main_part import MainPart
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK

_REVERSED = """# Python's arrays with the axes reversed are the same in memory.
reversed(array) = permutedims(array, ndims(array):-1:1)"""


def network(assignment: str) -> MainPart:
    """Return the main part that makes a network with the weights beside the program; it ends with an assignment from
    `state`, the program's state.
    """
    text = f"""{_REVERSED}

arrays = npzread(first(splitext(@__FILE__)) * ".npz")
state = setup(Dict(name => reversed(array) for (name, array) in arrays))
{assignment}"""
    return MainPart(text, libraries=("using NPZ",))


_USAGE = """#     julia --threads=THREADS THIS_FILE initial_state.npz FOLDER
#
# initial_state.npz has the initial weights and the inputs of each batch; it comes from
# `polybench export --weights`. FOLDER has the data, as `export --train -o` writes it.
# Needs the packages PACKAGES."""
_CLOCK = (
    "# The end of each phase by the system's monotonic clock, in seconds.",
    'const CLOCK = [("process", time_ns() / 1.0e9)]',
)


def training(job: Job, steps: int, packages: Sequence[str] = ("Flux",), *, clock: bool = False) -> MainPart:
    """Return the training that polybench times: `steps` steps after the untimed ones, with NPZ and these packages.

    With `clock`, the program prints when each phase of its start has ended.
    """
    julia_threads, blas_threads = threads(job.workload.threads, job.variants)
    text = "\n".join([
        f"const UNTIMED_STEPS = {WARMUP_STEPS_PER_BLOCK}",
        f"const STEPS = {steps}",
        "",
        *_REVERSED.splitlines(),
        "",
        *(_read_images(job) if len(job.model.input_shape) == 3 else _READ_SEQUENCES),
        "",
        "# Train and time each step; print a line of JSON.",
        "function main(state_file, folder)",
        f'    Threads.nthreads() == {julia_threads} || error("start julia with --threads={julia_threads}")',
        f"    BLAS.set_num_threads({blas_threads})",
        "    start = npzread(state_file)",
        "    inputs, labels = read_data(folder)",
        '    batches = map(eachrow(start["batches"])) do numbers',
        f"        return load({_chosen('inputs', job.model.input_shape)}, {_chosen('labels', job.model.label_shape)})",
        "    end",
        *_tick(clock, "data"),
        '    arrays = Dict(name => reversed(one) for (name, one) in start if name != "batches")',
        "    state = setup(arrays)",
        *_tick(clock, "build"),
        *_timed_steps(job, clock=clock),
        "    return nothing",
        "end",
        "",
        *([line.strip() for line in _tick(clock, "import")]),
        "main(ARGS...)",
    ])  # fmt: skip
    *others, last = sorted({*packages, "NPZ"})
    usage = _USAGE.replace("THREADS", str(julia_threads), 1).replace("PACKAGES", f"{', '.join(others)} and {last}")
    return MainPart(text, usage, _CLOCK if clock else (), ("using LinearAlgebra: BLAS", "using NPZ"))


def _tick(clock: bool, phase: str) -> list[str]:
    return [f'    push!(CLOCK, ("{phase}", time_ns() / 1.0e9))'] if clock else []


def _chosen(name: str, shape: tuple[int, ...]) -> str:
    return f"{name}[{':, ' * len(shape)}numbers .+ 1]"


_READ_SEQUENCES = (
    "# Read the sequences and labels that `polybench export` has written.",
    "function read_data(folder)",
    '    inputs = npzread(joinpath(folder, "tokens.npy"))',
    '    return reversed(inputs), reversed(npzread(joinpath(folder, "labels.npy")))',
    "end",
)


def _read_images(job: Job) -> Iterator[str]:
    shape = job.model.input_shape
    yield "# Read images in 0..1 and labels from files in the format of CIFAR-10."
    yield "function read_data(folder)"
    yield '    files = [read(joinpath(folder, "data_batch_$n.bin")) for n in 1:5]'
    yield f"    records = reshape(reduce(vcat, files), {1 + math.prod(shape)}, :)"
    yield f"    images = reshape(records[2:end, :], {', '.join(map(str, reversed(shape)))}, :)"
    yield "    return Float32.(images) ./ 255.0f0, Int.(records[1, :])"
    yield "end"


def _timed_steps(job: Job, *, clock: bool) -> Iterator[str]:
    step = "train_steps!(state, [batch])" if "train" in job.variants else "train_step!(state, batch)"
    yield "    seconds, losses = Float64[], DTYPE[]"
    yield "    for batch in batches"
    yield "        begun = time_ns()"
    yield f"        loss = {step}"
    yield "        push!(seconds, (time_ns() - begun) / 1.0e9)"
    yield "        push!(losses, loss)"
    if clock:
        yield "        length(losses) > UNTIMED_STEPS && continue"
        yield '        push!(CLOCK, (("first_step", "second_step")[length(losses)], time_ns() / 1.0e9))'
    yield "    end"
    yield '    timed = join(seconds[(UNTIMED_STEPS + 1):end], ", ")'
    yield '    all_losses = join(losses, ", ")'
    printed = '"step_seconds": [$timed], "losses": [$all_losses]'
    if clock:
        yield r'    phases = join(["[\"$phase\", $time]" for (phase, time) in CLOCK], ", ")'
        printed = f'"clock": [$phases], {printed}'
    yield f'    println("""{{{printed}}}""")'
