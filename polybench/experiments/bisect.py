"""Bisection: finds the version at which a step became slower or faster, with pairs of a version and the first one.

A pair is an ordinary study of two configurations, saved with tags. A bisection that was interrupted resumes by itself,
because it starts with the saved pairs of the same request.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence

import msgspec

from polybench.errors import PolybenchError
from polybench.machine import host
from polybench.run import run_study
from polybench.runner.prepare import new_header
from polybench.runner.progress import Progress
from polybench.runner.versions import BuildFailed, Versions
from polybench.schema.analyses import BisectDocument, BisectPair
from polybench.schema.metadata import StudyFileMetadata
from polybench.schema.options import Study
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument
from polybench.stats import bisection
from polybench.storage.filters import Filters
from polybench.storage.store import Store

_VERSION = "version="


class Unmeasurable(PolybenchError):
    """A version without a step time, with the reason."""


class Interrupted(Exception):
    """The study of a pair was interrupted."""


def search(
    versions: Sequence[str],
    pairs: list[BisectPair],
    measure: Callable[[str], BisectPair],
    *,
    max_pairs: int | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> BisectDocument:
    """Search for the change among `versions`, the first of which is the known one; `measure` one pair after the other.

    Args:
        versions: all versions in order.
        pairs: those that were measured before; it is extended.
        measure: measures a version and the first one side by side; raises Unmeasurable, or Interrupted.
        max_pairs: the maximum number of pairs; by default 1.5 log2(n) + 6 for n possible changes.
        report: called with a sentence after each pair.
    """
    first, skipped = versions[0], dict[str, str]()
    document = BisectDocument(versions=list(versions), pairs=pairs, skipped=skipped)
    while True:
        measurable = [version for version in versions if version not in skipped]
        number = {version: index for index, version in enumerate(measurable)}
        n = len(measurable) - 1
        logs: dict[int, list[float]] = {}
        for pair in pairs:
            logs.setdefault(number[pair.version], []).append(math.log(pair.ratio))
        following = bisection.next_version(logs, n, max_pairs)
        if following is None:
            break
        version = measurable[following]
        try:
            pairs.append(pair := measure(version))
        except Unmeasurable as error:
            if version == versions[-1]:
                raise
            skipped[version] = str(error)
            report(f"skipped {version}: {error}")
        except Interrupted:
            document.interrupted = True
            break
        else:
            report(f"pair {len(pairs)}: {version} over {first}: {pair.ratio - 1:+.1%}")
    _conclude(document, measurable, logs)
    return document


def _conclude(document: BisectDocument, measurable: Sequence[str], logs: bisection.Pairs) -> None:
    """Enter the result of the search, or the reason why there is none."""
    n = len(measurable) - 1
    if document.interrupted:
        document.inconclusive_reason = "interrupted"
    elif (change := bisection.find_change(logs, n)) is not None:
        document.version, document.previous = measurable[change.version], measurable[change.version - 1]
        document.probability, document.ratio, document.ci95 = change.probability, change.ratio, change.ci95
    elif not bisection.ends_differ(logs, n):
        document.inconclusive_reason = (
            f"{measurable[n]} does not differ measurably from {measurable[0]}: increase --processes, or measure on an"
            " idle machine"
        )
    else:
        low, high = bisection.credible_versions(logs, n)
        document.credible_versions = (measurable[low], measurable[high])
        document.inconclusive_reason = "the pairs vary too much: increase --processes or --max-pairs"


def run_bisect(
    source: Versions,
    ends: tuple[str, str],
    study: Study,
    progress: Progress,
    *,
    store: Store,
    max_pairs: int | None = None,
    report: Callable[[str], None] = lambda _: None,
    argv: Sequence[str] = (),
) -> BisectDocument:
    """Bisect the versions between two ends with the study's one engine; other arguments are as in `search`.

    Raises BadInput for unknown versions, and PolybenchError if an end cannot be measured.
    """
    store.ensure_writable()
    versions = source.between(*ends)
    (engine,) = study.engines
    request = [source.subject, str(source.checkout and source.checkout.resolve()), versions[0], versions[-1]]
    options = msgspec.json.encode(msgspec.structs.replace(study, env={}))
    tag = f"bisect={hashlib.sha256(msgspec.json.encode(request) + options).hexdigest()[:12]}"

    def measure(version: str) -> BisectPair:
        try:
            pair = source.pair(study, versions[0], version)
        except BuildFailed as error:
            raise Unmeasurable(str(error)) from error
        metadata = StudyFileMetadata(f"bisection of {source.subject}", tags=(tag, f"{_VERSION}{version}"))
        pair = msgspec.structs.replace(pair, cold_starts=0)  # nobody reads how long they start
        return _pair(run_study(pair, progress, store=store, header=new_header(argv, metadata)))

    hostname = host.this_host().hostname
    saved = reversed([*store.studies(Filters(tags=[tag], host=hostname))])
    pairs = [_pair(document) for document in saved if all(map(_is_complete, document.results))]
    document = search(versions, pairs, measure, max_pairs=max_pairs, report=report)
    document.subject, document.engine = source.subject, engine
    document.description = source.describe(document.version) if document.version else None
    document.processes = study.processes
    return document


def _is_complete(result: Result) -> bool:
    return result.is_measured and result.status != "interrupted"


def _pair(document: StudyDocument) -> BisectPair:
    """Return the ratio of a study's second configuration over its first."""
    baseline, other = document.results
    if any(result.status == "interrupted" for result in document.results):
        raise Interrupted
    for result in (other, baseline):
        if not result.is_measured or other.vs_baseline is None:
            raise Unmeasurable(result.reason or "no step time")
    assert other.vs_baseline is not None
    version = next(tag.removeprefix(_VERSION) for tag in document.tags if tag.startswith(_VERSION))
    return BisectPair(version=version, study=document.id, ratio=1 / other.vs_baseline.speedup)
