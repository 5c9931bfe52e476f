"""Costs of saved studies with other prices."""

from __future__ import annotations

import pytest

from polybench.analysis.prices import check_prices
from polybench.errors import BadInput
from polybench.results.document import derive
from polybench.results.sweep import build_sweep_document
from polybench.schema.measurements import SweepDocument
from tests.factories import measured, points_over_threads, study
from tests.log_of import events_of


def test_a_given_price_replaces_that_of_a_saved_study() -> None:
    saved = study(measured("torch/cpu", 0.01), measured("torch/cuda", 0.001))
    saved.settings.prices |= {"cpu": 9.0, "cuda": 2.0}
    priced = derive(events_of(saved), prices={"cpu": 1.0})
    assert priced.settings.prices == {"cpu": 1.0, "cuda": 2.0}
    costs = [one.cost and one.cost.dollars_per_epoch for one in priced.results]
    assert costs == pytest.approx([390 * 0.01 / 3600, 390 * 0.001 / 3600 * 2])


def test_a_given_price_for_another_number_of_threads_is_reported() -> None:
    priced = derive(events_of(study(measured("torch/cpu", 0.01))), prices={"cpu-16": 1.0})
    assert priced.settings.prices == {}
    (text,) = (text for text in priced.warnings if "price" in text)
    assert text.startswith("no price of cpu with 2 threads: prices have 16 threads")


def swept() -> SweepDocument:
    points = points_over_threads()
    return build_sweep_document({"threads": [values["threads"] for values, _ in points]}, points, (), 2)


def test_a_price_that_applies_to_one_of_the_documents_is_accepted() -> None:
    check_prices(["cpu", "cuda"], [study(measured("torch/cuda", 0.01)), swept()])


@pytest.mark.parametrize(
    ("price", "message"),
    [("cuda", "no configuration ran on cuda: expected one of cpu"), ("cpu-77", "no study used that many threads")],
)
def test_a_price_that_applies_to_none_is_refused(price: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check_prices([price], [swept()])
