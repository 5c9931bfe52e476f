"""`polybench versions`: compares two releases of a package, or two commits of a checkout, side by side."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from polybench.cli.diff import parse_conditions
from polybench.cli.live import progress_on_stderr
from polybench.cli.options import MEASUREMENT, WORKLOAD, with_options
from polybench.cli.output import (
    OutputOptions,
    check_writable,
    echo,
    exit_code,
    own_arguments,
    parse_columns,
    print_and_exit,
    repeats_warnings_of,
    width,
)
from polybench.engines import ENGINES
from polybench.errors import BadInput
from polybench.machine import interrupts
from polybench.render import check_format, render
from polybench.schema import units
from polybench.schema.metadata import NO_METADATA, StudyFileMetadata
from polybench.schema.options import EngineName, Study, program_paths
from polybench.schema.study import StudyDocument
from polybench.storage.filters import Filters

if TYPE_CHECKING:
    from polybench.runner.versions import Versions
    from polybench.storage.store import Store

UNUSED = (
    *("env", "epochs", "accuracy", "target_accuracy", "target_loss", "injected_delays", "recheck", "strict", "dry_run"),
    *("quick", "replicas"),
)
"""Options of a study that a comparison of versions does not have."""
_VERSION = "version="
"""Start of the tag with the version that --since-last measured."""
OUTPUT_FIELDS = ("columns", "format", "output", "results", "save", "title", "tags", "quiet", "verbose")

PackageOption = Annotated[
    str | None, typer.Option("--package", metavar="NAME", help="Package whose releases are compared: torch.")
]
CheckoutOption = Annotated[
    Path | None,
    typer.Option(
        "--checkout",
        metavar="FOLDER",
        help="Git checkout whose commits are compared: of a Python or Julia package, or of the program of --engines.",
    ),
]


@with_options(*(name for name in WORKLOAD | MEASUREMENT if name not in UNUSED), *OUTPUT_FIELDS)
def versions(
    study: Study,
    options: OutputOptions,
    base: Annotated[
        str | None, typer.Argument(metavar="BASE", help="Release or commit that is the base of the comparison.")
    ] = None,
    head: Annotated[
        str | None, typer.Argument(metavar="HEAD", help="Release or commit at the head of a change.")
    ] = None,
    since_last: Annotated[
        bool,
        typer.Option(
            "--since-last",
            help="Compare the newest release, or the HEAD of the checkout, with the last good one; for scheduled jobs.",
        ),
    ] = False,
    package: PackageOption = None,
    checkout: CheckoutOption = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="VERDICT=PERCENT",
            help="Condition for exit code 1. slower=5%: the step of HEAD takes 5% more time, and the interval over"
            " processes excludes 1; also faster=5%. The exit code is 4 if the interval does not decide it.",
            show_default="none; slower=5% with --since-last",
        ),
    ] = None,
) -> None:
    """Installs each into an environment of its own, and measures both in turns, so that drift of the machine cancels.

    With --since-last, the base is the newest version that an earlier call with the same settings measured without
    meeting --fail-if; at first, it is the version before the newest. Nothing is measured until there is a newer one.

    Example: polybench versions main HEAD --checkout . --engines flux --fail-if slower=5%
    """
    from polybench.storage.store import Store, results_folder

    conditions = parse_conditions(fail_if or (["slower=5%"] if since_last else []))
    check_format(options.format)
    parse_columns(options.columns)
    source, study = make_source(study, package, checkout)
    check_writable(options.output)
    store = Store(results_folder(options.results)) if options.save else None
    metadata = options.name(NO_METADATA)
    if since_last:
        if base is not None:
            raise BadInput(f"{base}: --since-last finds both versions: leave it out")
        if store is None:
            raise BadInput("--no-save: --since-last finds the last version in saved studies: leave it out")
        found = _versions_since_last(source, study, store, conditions)
        if found is None:
            return
        base, head, tags = found
        title = metadata.title or f"{source.subject} {head}"
        metadata = msgspec.structs.replace(metadata, title=title, tags=(*metadata.tags, *tags))
    if base is None or head is None:
        raise BadInput("expected BASE and HEAD, two releases or commits, or --since-last")
    if (unbuilt := source.unbuilt(base, head)) and not options.quiet:
        hint = ": Julia compiles for minutes" if source.julia else ""
        echo(f"building an environment of {' and of '.join(unbuilt)}{hint}", err=True)
    document, text = measure_pair(source.pair(study, base, head), options, store, metadata)
    message = f"saved; print it again with: polybench show {document.id}"
    code = exit_code(document)
    if not code:
        verdict = verdict_code(document, conditions)
        code = verdict if conditions else 0
    print_and_exit(text, options, store, message, code)


def _versions_since_last(
    source: Versions, study: Study, store: Store, conditions: dict[str, float]
) -> tuple[str, str, tuple[str, str]] | None:
    """Return the last good version, the newest one, and the tags by which a later call finds their study.

    Returns None, and prints the reason, if the newest version was measured.
    """
    request = msgspec.json.encode([source.subject, str(source.checkout and source.checkout.resolve()), study])
    tag = f"since_last={hashlib.sha256(request).hexdigest()[:12]}"
    previous, newest = source.newest()
    saved = [one for one in store.studies(Filters(tags=[tag])) if one.results[-1].is_measured]  # the newest first
    measured = {_version_of(one): one for one in reversed(saved)}
    if newest in measured:
        echo(f"no new version: {newest} was measured in {measured[newest].id}", err=True)
        return None
    good = [version for version, one in measured.items() if verdict_code(one, conditions, quiet=True) == 0]
    return good[-1] if good else previous, newest, (tag, f"{_VERSION}{newest}")


def _version_of(study: StudyDocument) -> str:
    return next(tag.removeprefix(_VERSION) for tag in study.tags if tag.startswith(_VERSION))


def measure_pair(
    pair: Study, options: OutputOptions, store: Store | None, metadata: StudyFileMetadata
) -> tuple[StudyDocument, str]:
    """Measure the study of two versions with progress; return it and its text in the format of the options."""
    from polybench.run import run_study
    from polybench.runner.prepare import new_header

    columns = parse_columns(options.columns)
    header = new_header(own_arguments(), metadata)
    make_progress = partial(progress_on_stderr, quiet=options.quiet, verbose=options.verbose)
    with interrupts.defer_signals():
        with make_progress(repeats_warnings=repeats_warnings_of(options)) as progress:
            document = run_study(pair, progress, store=store, header=header)
        progress.flush_warnings(document.warnings)
    return document, render(document, options.format, width=width(options.output), columns=columns)


def make_source(study: Study, package: str | None, checkout: Path | None) -> tuple[Versions, Study]:
    """Return the versions of the options, and the study with its one device; raise BadInput if they do not fit."""
    from polybench.runner.versions import Versions

    if (package is None) == (checkout is None):
        raise BadInput("expected either --package NAME or --checkout FOLDER")
    if len(study.engines) != 1:
        raise BadInput("expected one engine, such as --engines torch")
    study = msgspec.structs.replace(study, devices=study.devices or ("cpu",))
    if len(study.devices or ()) * len(study.precisions) != 1:
        raise BadInput("expected one device and one precision, such as --devices cuda --precision fp32")
    spec = ENGINES.find(EngineName.parse(study.engines[0]).engine)
    is_julia = bool(spec.project_files) and (checkout is None or (checkout / "Project.toml").is_file())
    return Versions(package, checkout, is_julia, checkout and _program_in(checkout, study.engines[0])), study


def _program_in(checkout: Path, engine: str) -> Path | None:
    """Return the path in the checkout of a user's program; None for an engine, or a program outside of it."""
    path = Path(next(iter(program_paths([engine]).values()), "")).absolute()
    is_inside = path.is_file() and path.is_relative_to(checkout.absolute())
    return path.relative_to(checkout.absolute()) if is_inside else None


def verdict_code(document: StudyDocument, conditions: dict[str, float], *, quiet: bool = False) -> int:
    """Return 1 if the second version meets a condition, 4 if it may or not, else 0; print the verdict unless quiet."""
    from polybench.analysis.verdicts import change, judge, meets

    result = document.results[1]
    comparison, tolerance = result.vs_baseline, document.settings.tolerance
    if comparison is None or comparison.is_significant is None or comparison.ci95 is None:
        is_met = None
        text = f": cannot tell: {(comparison and comparison.inconclusive_reason) or 'increase --processes'}"
    else:
        ratio, interval = comparison.speedup, comparison.ci95
        verdict, reason = judge(ratio, interval, tolerance, is_significant=comparison.is_significant)
        is_met = meets(verdict, ratio, interval, conditions)
        text = {
            "no difference": f": no difference above {units.format_percent(tolerance)}",
            "cannot tell": f": cannot tell: {reason}",
        }.get(verdict, f" is {verdict} by {change(ratio):.1%} than {comparison.baseline}")
    if not quiet:
        echo(f"{result.configuration}{text}", err=True)
    return {True: 1, False: 0, None: 4}[is_met]
