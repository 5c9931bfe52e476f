"""`polybench export`: the programs of a study, a network, its whole training or its initial weights, as files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from polybench.cli.completion import model_names, one_of
from polybench.cli.export_study import export_study, names_study
from polybench.cli.options import WORKLOAD, Overrides, reject_given, with_options
from polybench.cli.output import check_writable, echo, write
from polybench.errors import BadInput
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK, Study

_BOTH = {"data", "batch_size", "steps"}
"""Parameters that have an effect with --train and --weights, but not on the network alone."""
_EVERYWHERE = {"model", "seed"}


def _frameworks() -> Iterable[str]:
    from polybench.scripts.emitters import EMITTERS

    return EMITTERS


NetworkArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="NETWORK|ID",
        help="Network, in place of --model; or a saved study: ID, prefix of an ID, path, or last.",
        autocompletion=model_names,
        show_default=False,
    ),
]
Train = Annotated[
    bool, typer.Option("--train", help="Export the training program of each engine, with data, weights and loop.")
]
Weights = Annotated[bool, typer.Option("--weights", help="Export initial weights and batch order alone.")]
Framework = Annotated[
    str | None,
    typer.Option(
        "--framework",
        help="Framework of the network's code: torch, tf, keras, jax, flux or lux.",
        autocompletion=one_of(_frameworks),
    ),
]
Steps = Annotated[
    int,
    typer.Option(
        "--steps",
        min=1,
        max=1_000_000,
        help="Training steps, each with a batch, with --train or --weights."
        f" A program does not time its first {WARMUP_STEPS_PER_BLOCK}.",
    ),
]
ExportOutput = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE|FOLDER",
        help="File of the code, .py or .jl; folder of a study's programs or of --train; file of --weights, .npz.",
        show_default="of a study and with --train standard output, without weights and batches",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is at --output.")]


Template = Annotated[
    Path | None,
    typer.Option(
        "--template", metavar="FILE.py", help="Write a program of your own to fill in: its functions, with comments."
    ),
]


@with_options(*WORKLOAD, "results")
def export(
    context: typer.Context,
    model: str,
    study: Study,
    network: NetworkArgument = None,
    train: Train = False,
    weights: Weights = False,
    framework: Framework = None,
    steps: Steps = 60,
    output: ExportOutput = None,
    force: Force = False,
    template: Template = None,
    results: Path | None = None,
) -> None:
    """Of a study, the programs that its engines ran and timed, from its log.

    With --framework, the file is the program that the engine runs. Its weights are beside it, with the suffix .npz:
    those beside a network file, as `polybench import` writes them, or else initial ones.

    With --train, a folder has the program of each configuration: the timed training as a user of the framework would
    write it, without polybench. A configuration without a program has a comment with the reason. All options of the
    workload apply.

    With --weights, a file has `LAYER.weight` and `LAYER.bias` (float32; convolutions (out, in, height, width), dense
    layers (out, in)), `LAYER.running_mean` and `LAYER.running_variance` of batch norm, and `batches` (steps, batch
    size): int64 indices into the training set. Of the workload, --model, --data, --batch-size and --seed apply.

    Example: polybench export --model net.toml --framework keras -o net.py
    """
    if template is not None:
        others = {"network", "train", "weights", "framework", "steps", "output", "results", *WORKLOAD}
        reject_given(context, others, "has no effect with --template: leave it out")
        _write_template(template, force=force)
        return
    if output is not None and not force:
        _refuse_to_replace(output, *([output.with_suffix(".npz")] if framework else []), is_folder=train)
    if network is not None and names_study(network):
        rest = {"train", "weights", "framework", "steps", *WORKLOAD}
        reject_given(context, rest, f"has no effect on the programs of {network}: leave it out")
        export_study(network, results, output)
        return
    reject_given(context, {"results"}, "has no effect without the ID of a study: leave it out")
    _reject_options_of_other_modes(context, train=train, weights=weights)
    if network is not None:
        reject_given(context, {"model"}, f"the network is already {network}: leave out one of them")
        model = network
    if train:
        from polybench.cli.export_train import export_training

        export_training(_with_model(study, model), steps, output)
    elif output is None:
        raise BadInput(f"--output: expected a file to write, such as -o {'start.npz' if weights else 'net.py'}")
    elif weights:
        from polybench.cli.export_weights import export_weights

        export_weights(_with_model(study, model), steps, output)
    elif framework is None:
        raise BadInput("--framework: expected a framework, such as torch; or add --train or --weights")
    else:
        _export_network(model, framework, study.seed, output)


def _write_template(path: Path, *, force: bool) -> None:
    from polybench.scripts.program_template import TEXT

    if path.suffix != ".py":
        raise BadInput(f"--template {path}: expected a file ending in .py")
    if not force:
        _refuse_to_replace(path, is_folder=False, option="--template")
    check_writable(path)
    write(TEXT.replace("THIS_FILE", path.name), path)
    echo(f"wrote {path}: fill in its functions, then: polybench compare --engines torch,./{path.name}", err=True)


def _refuse_to_replace(*paths: Path, is_folder: bool, option: str = "--output") -> None:
    """Raise BadInput if a folder with files exists, or a file unless it ought to be a folder."""
    for path in paths:
        with contextlib.suppress(OSError):  # reported by what writes there
            if any(path.iterdir()) if path.is_dir() else path.is_file() and not is_folder:
                raise BadInput(f"{option}: {path} exists: name another one, or add --force")


def _reject_options_of_other_modes(context: typer.Context, *, train: bool, weights: bool) -> None:
    only_train = WORKLOAD.keys() - _BOTH - _EVERYWHERE
    if train:
        reject_given(context, {"weights"}, "the folder of --train contains them: leave it out")
        reject_given(context, {"framework"}, "has no effect with --train: use --engines")
    elif weights:
        reject_given(context, {*only_train, "framework"}, "has no effect with --weights: leave it out")
    else:
        reject_given(context, only_train, "needs --train: add it")
        reject_given(context, _BOTH, "needs --train or --weights: add one of them")


def _with_model(study: Study, model: str) -> Study:
    return Overrides(model=model).apply(study)


def _export_network(network: str, framework: str, seed: int, output: Path) -> None:
    from polybench.networks import find_model
    from polybench.planning.study_file import NETWORK_SUFFIX, read_network
    from polybench.scripts.network_code import export as write_code
    from polybench.scripts.network_code import read_weights

    suffix = ".jl" if framework in ("flux", "lux") else ".py"
    if output.suffix != suffix:
        raise BadInput(f"--output {output}: expected a name that ends in {suffix}")
    check_writable(output)
    is_from_file = network.endswith(NETWORK_SUFFIX)
    model = read_network(network) if is_from_file else find_model(network)
    path = Path(network) if is_from_file else Path(f"{network}{NETWORK_SUFFIX}")
    if path.resolve().with_suffix(".npz") == output.resolve().with_suffix(".npz") and is_from_file:
        raise BadInput(f"--output {output}: its weights would replace those of {network}: choose another name")
    weights, source = read_weights(model, path, seed)
    write_code(model, weights, framework, output)
    echo(f"wrote {output} and {output.with_suffix('.npz').name}, with {source}", err=True)
