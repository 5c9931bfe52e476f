"""Checks the prices for which saved studies and sweeps are computed again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from polybench.errors import BadInput
from polybench.schema.documents import AnyDocument
from polybench.schema.measurements import SweepDocument
from polybench.schema.options import merge_prices, parse_price_key
from polybench.schema.study import StudyDocument


def check_prices(prices: Iterable[str], documents: Sequence[AnyDocument]) -> None:
    """Raise BadInput unless each price is that of a device and number of threads in one of the documents."""
    used = list(dict.fromkeys(one for document in documents for one in _used(document)))
    for price in prices:
        device = parse_price_key(price)
        threads = dict.fromkeys(number for other, number in used if other == device)
        if not threads:
            devices = dict.fromkeys(other for other, _ in used)
            expected = f"expected one of {', '.join(devices)}" if devices else "only studies and sweeps have costs"
            raise BadInput(f"--price {price}: no configuration ran on {device}: {expected}")
        if not any(merge_prices({price: 1.0}, number) for number in threads):
            raise BadInput(
                f"--price {price}: no study used that many threads: expected {device}-N with N one of"
                f" {', '.join(map(str, threads))}, or {device} for any number"
            )


def _used(document: AnyDocument) -> Iterator[tuple[str, int]]:
    """Yield the device of each configuration, with the number of threads."""
    if isinstance(document, StudyDocument):
        yield from ((result.device, document.settings.threads) for result in document.results)
    elif isinstance(document, SweepDocument):
        for point in document.points:
            if point.workload is not None:
                for one in point.configurations:
                    yield one.configuration.split("/")[1].partition("#")[0], point.workload.threads
