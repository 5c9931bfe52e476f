"""What must be known before a study's numbers are believed."""

from __future__ import annotations

from polybench.core.document.times import Relative
from polybench.core.spec import Study
from polybench.report.warnings import final_warnings
from tests.factories import measured, study


def relative(low: float, high: float) -> Relative:
    return Relative("torch/cpu", 2.0, (low, high), "processes")


def test_a_target_that_was_missed_names_the_cells_and_their_half_widths() -> None:
    document = study(
        measured("torch/cpu", 0.0165, relative=Relative("torch/cpu", 1.0, None, "within one run")),
        measured("tf/cpu", 0.01, relative=relative(1.92, 2.08)),  # 4 %
        measured("flux/cpu", 0.01, relative=relative(1.8, 2.2)),  # 10 %
        measured("flux/cuda", 0.01, relative=None),
    )
    (text,) = final_warnings(document, Study(), cut_short=False)
    assert text.startswith("the target of ±5 % was not reached: flux/cpu ±10.0%; try --processes 10")
    assert not list(final_warnings(document, Study(target=0.11), cut_short=False))
    assert not list(final_warnings(document, Study(processes=1), cut_short=False))
