"""`polybench watch`: measures the newest version of a package against the last good one, for scheduled jobs."""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec
import typer

from polybench.cli.diff import parse_conditions
from polybench.cli.options import MEASUREMENT, WORKLOAD, with_options
from polybench.cli.output import OutputOptions, check_writable, echo, exit_code, print_and_exit
from polybench.cli.versions import UNUSED, CheckoutOption, PackageOption, make_source, measure_pair, verdict_code
from polybench.render import check_format
from polybench.schema.metadata import StudyFileMetadata
from polybench.schema.options import Study

_VERSION = "version="


@with_options(
    *(name for name in WORKLOAD | MEASUREMENT if name not in UNUSED),
    *("columns", "format", "output", "results", "title", "tags", "quiet", "verbose"),
)
def watch(
    study: Study,
    options: OutputOptions,
    package: PackageOption = None,
    checkout: CheckoutOption = None,
    fail_if: Annotated[
        str, typer.Option("--fail-if", metavar="VERDICT=PERCENT", help="Condition for exit code 1, also faster=5%.")
    ] = "slower=5%",
) -> None:
    """Measure the newest release, or the HEAD of a checkout, side by side with the last good one.

    The last good version is the newest one that an earlier watch with the same settings measured without meeting
    --fail-if. At first it is the version before the newest. Nothing is measured until there is a newer version.

    Example: polybench watch --package torch --engines torch --format markdown -o change.md
    """
    from polybench.storage.store import Store, results_folder
    from polybench.storage.summaries import Filters

    conditions = parse_conditions([fail_if])
    check_format(options.format)
    source, study = make_source(study, package, checkout)
    check_writable(options.output)
    store = Store(results_folder(options.results))
    request = msgspec.json.encode([source.subject, str(checkout and checkout.resolve()), study])
    tag = f"watch={hashlib.sha256(request).hexdigest()[:12]}"
    previous, newest = source.newest()
    saved = [one for one in store.studies(Filters(tags=[tag])) if one.results[-1].is_measured]  # the newest first
    watched = {_version(one.tags): one for one in reversed(saved)}
    if newest in watched:
        echo(f"no new version: {newest} was measured in {watched[newest].id}", err=True)
        return
    good = [version for version, one in watched.items() if verdict_code(one, conditions, quiet=True) == 0]
    pair = source.pair(study, good[-1] if good else previous, newest)
    tags = (*options.tags, tag, f"{_VERSION}{newest}")
    metadata = StudyFileMetadata(options.title or f"{source.subject} {newest}", tags=tags)
    document, text = measure_pair(pair, options, store, metadata)
    code = exit_code(document) or verdict_code(document, conditions)
    print_and_exit(text, options, store, f"saved as {document.id}", code)


def _version(tags: list[str]) -> str:
    return next(tag.removeprefix(_VERSION) for tag in tags if tag.startswith(_VERSION))
