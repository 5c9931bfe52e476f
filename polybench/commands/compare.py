"""`polybench compare`: the main job."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.commands import options as o
from polybench.commands.describe import print_scripts
from polybench.commands.execute import Presentation, execute, print_plan


def compare(
    engines: o.Engines = o.DEFAULT_ENGINES,
    devices: o.Devices = None,
    model: o.ModelName = o.DEFAULTS.model,
    data: o.Data = o.DEFAULTS.data,
    batch_size: o.BatchSize = None,
    optimizer: o.OptimizerName = None,
    learning_rate: o.LearningRate = None,
    momentum: o.Momentum = None,
    weight_decay: o.WeightDecay = None,
    schedule: o.Schedule = None,
    precision: o.PrecisionName = o.DEFAULT_PRECISION,
    input_mode: o.InputName = o.DEFAULTS.input,
    workers: o.Workers = None,
    augment: o.Augment = o.DEFAULTS.augment,
    threads: o.Threads = None,
    seed: o.Seed = o.DEFAULTS.seed,
    processes: o.Processes = o.DEFAULTS.processes,
    quick: o.Quick = False,
    rounds: o.Rounds = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    accuracy: o.Accuracy = o.DEFAULTS.accuracy,
    until: o.Until = None,
    target: o.Target = f"{o.DEFAULTS.target:.0%}",  # type: ignore[assignment]
    budget: o.Budget = f"{o.DEFAULTS.budget:g}s",  # type: ignore[assignment]
    timeout: o.Timeout = f"{o.DEFAULTS.timeout:g}s",  # type: ignore[assignment]
    parity_steps: o.ParitySteps = o.DEFAULTS.parity_steps,
    no_parity: o.NoParity = False,
    metrics: o.Metrics = o.DEFAULTS.metrics,
    strict: o.Strict = False,
    baseline: o.Baseline = None,
    price: o.Prices = None,
    columns: o.Columns = None,
    format: o.Format = "table",
    output: o.Output = None,
    results: o.Results = None,
    save: o.Save = True,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    dry_run: o.DryRun = False,
    describe: Annotated[
        bool, typer.Option("--describe", help="Print the plain scripts that do what is timed; run nothing.")
    ] = False,
    handicap: Annotated[list[str] | None, typer.Option("--handicap", hidden=True)] = None,
) -> None:
    """Train the identical network in several engines and compare what it costs.

    Example: polybench compare --engines torch,tf --data cifar10
    """
    study = o.make_study(
        engines=o.split_names(engines),
        devices=o.split_names(devices) if devices else None,
        model=model,
        data=data,
        batch_size=batch_size,
        optimizer=optimizer,
        learning_rate=learning_rate,
        momentum=momentum,
        weight_decay=weight_decay,
        schedule=o.parse_schedule(schedule),
        precision=o.parse_precision(precision),
        input=input_mode,
        workers=workers,
        augment=augment,
        threads=threads,
        seed=seed,
        processes=processes,
        rounds=rounds,
        steps=steps,
        epochs=epochs,
        accuracy=accuracy,
        until=o.parse_pairs([until] if until else [], "--until"),
        target=target,
        budget=budget,
        timeout=timeout,
        parity=not no_parity,
        parity_steps=parity_steps,
        baseline=baseline,
        metrics=metrics,
        prices=o.parse_pairs(price or [], "--price"),
        handicaps=o.parse_pairs(handicap or [], "--handicap"),
    )
    if quick:
        study = study.quick()
    if describe:
        print_scripts(study)
        return
    if dry_run:
        print_plan(study)
        return
    execute(study, Presentation(format, columns, output, results, save, quiet, verbose), strict=strict)
