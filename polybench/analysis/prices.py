"""Costs of saved studies and sweeps at other prices: a saved time multiplied by a price. Measures nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, TypeVar

import msgspec

from polybench.errors import BadInput
from polybench.results.comparisons import add_costs
from polybench.results.sweep import build_sweep_document, sweep_warnings
from polybench.schema.documents import AnyDocument
from polybench.schema.measurements import SweepDocument
from polybench.schema.metadata import StudyFileMetadata
from polybench.schema.options import MISSING_PRICE, merge_prices, missing_prices, parse_price_key
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store

D = TypeVar("D", bound=AnyDocument)


def with_prices(documents: Sequence[D], prices: Mapping[str, float] | None, store: Store) -> list[D]:
    """Return the documents with costs at `prices`, as for `--price`; a study's own prices remain for other devices.

    The store has the logs of sweeps. Raises BadInput if one of them is missing, or a price applies to no document.
    """
    if not prices:
        return [*documents]
    priced: list[Any] = []
    studies: list[StudyDocument] = []
    for document in documents:
        if isinstance(document, StudyDocument):
            studies.append(document)
            priced.append(_price_study(document, prices))
        elif isinstance(document, SweepDocument):
            points = _load_points(document, store)
            studies += points
            priced.append(_price_sweep(document, [_price_study(point, prices) for point in points]))
        else:
            priced.append(document)
    for price in prices:
        _check(price, studies)
    return priced


def _load_points(sweep: SweepDocument, store: Store) -> list[StudyDocument]:
    try:
        by_id = {document.id: document for _, document in store.points_of(str(sweep.id))}
        return [by_id[point.id] for point in sweep.points]
    except (BadInput, LookupError) as error:
        raise BadInput(f"--price: the costs of {sweep.id} need its saved log: {error}") from error


def _check(price: str, studies: Sequence[StudyDocument]) -> None:
    """Raise BadInput unless a configuration ran on the device of the price, with its number of threads."""
    device = parse_price_key(price)
    matching = [study for study in studies if any(result.device == device for result in study.results)]
    if not matching:
        devices = dict.fromkeys(result.device for study in studies for result in study.results)
        expected = f"expected one of {', '.join(devices)}" if devices else "only studies and sweeps have costs"
        raise BadInput(f"--price {price}: no configuration ran on {device}: {expected}")
    threads = dict.fromkeys(study.settings.threads for study in matching)
    if not any(merge_prices({price: 1.0}, number) for number in threads):
        raise BadInput(
            f"--price {price}: no study used that many threads: expected {device}-N with N one of"
            f" {', '.join(map(str, threads))}, or {device} for any number"
        )


def _price_study(study: StudyDocument, prices: Mapping[str, float]) -> StudyDocument:
    threads, devices = study.settings.threads, [result.device for result in study.results]
    own = study.settings.prices | merge_prices(prices, threads)
    results = [copy(result) for result in study.results]
    add_costs(results, study.settings.baseline, own)
    missing = missing_prices(prices, [device for device in devices if device not in own], threads)
    return msgspec.structs.replace(
        study,
        settings=msgspec.structs.replace(study.settings, prices=own),
        results=results,
        warnings=[*missing, *(text for text in study.warnings if not text.startswith(MISSING_PRICE))],
    )


def _price_sweep(sweep: SweepDocument, studies: Sequence[StudyDocument]) -> SweepDocument:
    """Return the sweep with the costs of its studies, in the order of its points."""
    points = [(point.parameters, study) for point, study in zip(sweep.points, studies, strict=True)]
    metadata = StudyFileMetadata(published=sweep.published)
    priced = build_sweep_document(sweep.axes, points, sweep.argv, sweep.host.threads, metadata)
    return msgspec.structs.replace(
        sweep,
        points=[
            msgspec.structs.replace(point, configurations=one.configurations)
            for point, one in zip(sweep.points, priced.points, strict=True)
        ],
        cheapest=priced.cheapest,
        warnings=sweep_warnings(points),
    )
