"""Execution of a study: measures with progress, prints the result and exits with its code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from polybench.cli.explain import ExplainResult, explain_study
from polybench.cli.live import progress_on_stderr
from polybench.cli.output import (
    OutputOptions,
    check_writable,
    echo,
    exit_code,
    interrupted_hint,
    own_arguments,
    parse_columns,
    print_and_exit,
    repeats_warnings_of,
    width,
)
from polybench.errors import BadInput
from polybench.machine import interrupts
from polybench.render import EXPLANATION_FORMATS, check_format, render
from polybench.schema import units
from polybench.schema.metadata import NO_METADATA, StudyFileMetadata
from polybench.schema.options import Study, does_train, max_epochs

if TYPE_CHECKING:
    from polybench.runner.checkpoint import Checkpoint
    from polybench.schema.metrics import Metric
    from polybench.schema.study import StudyDocument


def execute(
    study: Study,
    options: OutputOptions,
    *,
    metadata: StudyFileMetadata = NO_METADATA,
    strict: bool = False,
    parity_only: bool = False,
    recheck: bool = False,
) -> NoReturn:
    """Measure a study, or only check its parity, and print it; raise typer.Exit with the exit code."""
    from polybench.run import run_study
    from polybench.runner.prepare import new_header

    measure = partial(
        run_study,
        study,
        header=new_header(own_arguments(), options.name(metadata), anonymous=options.anonymous),
        strict=strict,
        parity_check="only" if parity_only else "all" if recheck else "new",
    )
    run_and_render(measure, options, study, parity_only=parity_only)


def resume_study_by_id(
    id: str, options: OutputOptions, *, strict: bool = False, requested: Study | None = None
) -> NoReturn:
    """Resume the study with this ID, and print it like `execute`."""
    from polybench.run import resume_study

    run_and_render(partial(resume_study, id, strict=strict, anonymous=options.anonymous), options, requested)


def resume_matching_study(study: Study, options: OutputOptions, *, strict: bool = False) -> NoReturn:
    """Resume the newest interrupted study with the same settings."""
    id = find_checkpoint(study, options)
    resume_study_by_id(id, options, strict=strict, requested=study)


def find_checkpoint(
    study: Study,
    options: OutputOptions,
    kind: type[Checkpoint] | None = None,
    selection: Mapping[str, Any] | None = None,
) -> str:
    """Return the ID for `--resume`: of the newest interrupted run with the same settings, if runs are saved."""
    from polybench.runner.checkpoint import find_unfinished
    from polybench.storage.store import Store, results_folder

    if not options.save:
        raise BadInput("--resume needs a saved run: leave --no-save out")
    if options.title or options.tags:
        raise BadInput(
            f"--{'title' if options.title else 'tag'}: an interrupted run keeps its title and tags: leave it out"
        )
    return find_unfinished(study, Store(results_folder(options.results)), kind, selection)


def check_output(options: OutputOptions) -> list[Metric] | None:
    """Return the metrics of `--columns`; raise BadInput before measuring if the result cannot be printed or written."""
    metrics = parse_columns(options.columns)
    check_format(options.format)
    if options.explain and options.format not in EXPLANATION_FORMATS:
        expected = ", ".join(EXPLANATION_FORMATS)
        raise BadInput(f"--explain with --format {options.format}: expected a format with text: {expected}")
    check_writable(options.output)
    return metrics


def run_and_render(
    measure: Callable[..., StudyDocument],
    options: OutputOptions,
    requested: Study | None = None,
    *,
    parity_only: bool = False,
) -> NoReturn:
    """Call `measure(progress, store=store)` and print its study; raise typer.Exit with the exit code.

    `requested` is the study for `--explain`; with `parity_only`, `measure` runs only the parity check.
    """
    from polybench.analysis.repetitions import spread_between_days
    from polybench.render import explanation
    from polybench.render.study import fastest_rows
    from polybench.storage.store import Store, results_folder

    metrics = check_output(options)
    store = Store(results_folder(options.results)) if options.save else None
    repeats_warnings = repeats_warnings_of(options) and not parity_only
    make_progress = partial(progress_on_stderr, quiet=options.quiet, verbose=options.verbose)
    explained = ExplainResult(None)
    with interrupts.defer_signals():  # until the result is printed
        with make_progress(repeats_warnings=repeats_warnings) as progress:
            result = measure(progress, store=store)
        progress.flush_warnings(result.warnings)
        if not options.quiet:
            _print_log_tails(result)
        if options.explain:
            with make_progress() as progress:  # the table does not repeat the warnings of the explanation
                explained = explain_study(result, store, progress, own_arguments(), requested)
        line = width(options.output)
        text = render(
            result,
            options.format,
            kind="parity" if parity_only else "",
            width=line,
            columns=metrics,
            published=options.published,
            notes=store is None,
            name="last",
            spread=spread_between_days(result, store.summaries()) if store else None,
        )
        if explained.document is not None and options.format != "json":  # JSON has the statements already
            option = "polybench explain last --suggest"
            text += f"\n{explanation.render(explained.document, options.format, line, suggest_option=option)}"
        message = f"saved; print it again with: polybench show {result.id}"
        codes = exit_code(result, parity_only=parity_only), explained.code
        fastest = [] if parity_only else fastest_rows(result)
        print_and_exit(text, options, store, message, *codes, hint=interrupted_hint(result.results), fastest=fastest)


def print_plan(study: Study, *, is_remote: bool = False, machine: str | None = None) -> None:
    """Print the configurations of a study, and what would be measured.

    If another machine measures the study (`is_remote`), it is not checked against this one. `machine` is a label to
    print before each configuration.
    """
    from polybench.planning.plan import resolve, resolve_remote

    plan = resolve_remote(study) if is_remote else resolve(study)
    workload, precision = plan.workload, ",".join(plan.study.precisions)
    for configuration in plan.configurations:
        echo(configuration.name if machine is None else f"{machine}:{configuration.name}")
    echo(
        f"{units.format_model(workload.model, workload.pass_)}, batch {workload.batch_size}, {precision},"
        f" threads {workload.threads}, processes {study.processes}\n{_describe_measurement(study)}",
        err=True,
    )


def _describe_measurement(study: Study) -> str:
    """Return rounds and steps of a process, unless they follow from the speed, and whole trainings."""
    rounds, steps = study.rounds_per_process or "by speed", study.steps_per_round or "by speed"
    trainings = f"; then trainings of at most {units.plural(max_epochs(study), 'epoch')}" if does_train(study) else ""
    return f"rounds per process: {rounds}, steps per round: {steps}{trainings}"


def _print_log_tails(study: StudyDocument) -> None:
    """Print the last lines of failed workers' logs, which no document has, because they may contain anything."""
    from pathlib import Path

    from polybench.protocol.process import last_log_lines

    for result in study.results:
        if result.status == "failed" and result.log_path is not None:
            for line in last_log_lines(Path(result.log_path)):
                echo(f"{result.configuration}: {line}", err=True)
