"""Execution of a study: measures with progress, prints the result and exits with its code."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from polybench.cli.explain import ExplainResult, explain_study
from polybench.cli.live import StderrProgress, progress_on_stderr
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
from polybench.schema.options import CheckScope, Study, does_train, max_epochs

if TYPE_CHECKING:
    from polybench.runner.checkpoint import RunKind
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
    from polybench.run import run
    from polybench.runner.prepare import new_header, new_log

    output = StudyOutput(options, study, parity_only=parity_only)
    header = new_header(own_arguments(), options.name(metadata), anonymous=options.anonymous)
    check: CheckScope = "only" if parity_only else "all" if recheck else "new"
    with interrupts.defer_signals():  # until the result is printed
        with output.progress() as progress, new_log(study, header, output.store if not parity_only else None) as log:
            result = run(study, log, progress, store=output.store, strict=strict, parity_check=check)
        output.print(result, progress)


def resume_study_by_id(
    id: str, options: OutputOptions, *, strict: bool = False, requested: Study | None = None
) -> NoReturn:
    """Resume the study with this ID, and print it like `execute`."""
    from polybench.run import run
    from polybench.runner.resume import unfinished_log
    from polybench.storage.store import Store, results_folder

    output, store = StudyOutput(options, requested), Store(results_folder(options.results))
    with interrupts.defer_signals():
        with output.progress() as progress, unfinished_log(id, store, anonymous=options.anonymous) as (log, study):
            result = run(study, log, progress, store=store, strict=strict)
        output.print(result, progress)


def resume_matching_study(study: Study, options: OutputOptions, *, strict: bool = False) -> NoReturn:
    """Resume the newest interrupted study with the same settings."""
    id = find_checkpoint(study, options)
    resume_study_by_id(id, options, strict=strict, requested=study)


def find_checkpoint(
    study: Study, options: OutputOptions, kind: RunKind = "study", selection: Mapping[str, Any] | None = None
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


class StudyOutput:
    """The output of a study that is measured now; what cannot be printed or written is refused before that.

    Attributes:
        store: None if the study is not saved.
    """

    def __init__(self, options: OutputOptions, requested: Study | None = None, *, parity_only: bool = False) -> None:
        """Check the options; `requested` is the study for `--explain`."""
        from polybench.storage.store import Store, results_folder

        self._options, self._requested, self._parity_only = options, requested, parity_only
        self._metrics = check_output(options)
        self.store = Store(results_folder(options.results)) if options.save else None

    def progress(self) -> contextlib.AbstractContextManager[StderrProgress]:
        """Show progress on standard error; warnings that the result repeats are not shown twice."""
        repeats_warnings = repeats_warnings_of(self._options) and not self._parity_only
        return self._progress(repeats_warnings=repeats_warnings)

    def _progress(self, *, repeats_warnings: bool = False) -> contextlib.AbstractContextManager[StderrProgress]:
        quiet, verbose = self._options.quiet, self._options.verbose
        return progress_on_stderr(quiet=quiet, verbose=verbose, repeats_warnings=repeats_warnings)

    def print(self, result: StudyDocument, progress: StderrProgress) -> NoReturn:
        """Print the study, with its explanation if requested; raise typer.Exit with the exit code."""
        from polybench.render import explanation
        from polybench.render.study import fastest_rows
        from polybench.results.repetitions import spread_between_days

        options = self._options
        progress.flush_warnings(result.warnings)
        if self.store is not None:
            result.repetitions = spread_between_days(result, self.store.summaries())
        if not options.quiet:
            _print_log_tails(result)
        explained = ExplainResult(None)
        if options.explain:
            with self._progress() as own_progress:  # the table does not repeat the warnings of the explanation
                explained = explain_study(result, self.store, own_progress, own_arguments(), self._requested)
        text = self._render(result)
        if explained.document is not None and options.format != "json":  # JSON has the statements already
            option, line = "polybench explain last --suggest", width(options.output)
            text += f"\n{explanation.render(explained.document, options.format, line, suggest_option=option)}"
        message = f"saved; print it again with: polybench show {result.id}"
        codes = exit_code(result, parity_only=self._parity_only), explained.code
        fastest = [] if self._parity_only else fastest_rows(result)
        hint = interrupted_hint(result.results)
        print_and_exit(text, options, self.store, message, *codes, hint=hint, fastest=fastest)

    def _render(self, result: StudyDocument) -> str:
        return render(
            result,
            self._options.format,
            kind="parity" if self._parity_only else "",
            width=width(self._options.output),
            columns=self._metrics,
            published=self._options.published,
            notes=self.store is None,
            name="last",
        )


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
