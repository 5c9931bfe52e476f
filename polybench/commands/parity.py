"""`polybench parity`: only the identity check, tensor by tensor."""

from __future__ import annotations

from polybench.commands import options as o
from polybench.commands.execute import Presentation, execute


def parity(
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
    parity_steps: o.ParitySteps = o.DEFAULTS.parity_steps,
    timeout: o.Timeout = f"{o.DEFAULTS.timeout:g}s",  # type: ignore[assignment]
    strict: o.Strict = False,
    format: o.Format = "table",
    output: o.Output = None,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Check that engines compute what the float64 reference computes; measure nothing.

    Example: polybench parity --engines torch,tf --data cifar10
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
        parity_steps=parity_steps,
        timeout=timeout,
    )
    how = Presentation(format, None, output, None, save=False, quiet=quiet, verbose=verbose)
    execute(study, how, strict=strict, parity_only=True)
