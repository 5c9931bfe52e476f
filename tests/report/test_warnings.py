"""What must be known before a study's numbers are believed."""

from __future__ import annotations

from polybench.core.document.circumstances import RoundNoise
from polybench.core.document.resources import BlockReading, Disturbance
from polybench.core.document.times import Relative
from polybench.core.spec import Study
from polybench.report.warnings import final_warnings, of_points
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


def test_disturbed_blocks_are_told_with_who_did_it_and_what_to_do() -> None:
    calm, disturbed = BlockReading(1.0, 2.0, 0.0, 0.0, repeats=1), BlockReading(1.0, 2.0, 0.9, 0.0)
    blocks = [[calm, calm], [disturbed, calm]]
    row = Disturbance(blocks_repeated=3, blocks_disturbed=1, blocks=blocks)
    document = study(measured("torch/cpu", 0.0165, disturbance=row))
    document.host.busiest, document.host.waited_seconds = ["firefox"], 12.3
    assert list(final_warnings(document, Study(patience=30.0), cut_short=False)) == [
        "others took the cores: of 4 blocks 3 were measured again, 1 stayed disturbed; busy: firefox;"
        " close what is busy, or try --patience 60s",
        "waited 12 s for a quiet machine",
    ]


def test_swapping_is_told() -> None:
    document = study(measured("torch/cpu", 0.0165))
    document.host.noise.append(RoundNoise(0, 1, 0.1, 1.0, 0.0, 4096, True))
    (text,) = final_warnings(document, Study(), cut_short=False)
    assert text.startswith("the machine swapped in 1 of 2 rounds")


def test_warnings_of_a_sweep_say_of_which_points_they_are() -> None:
    one, two = study(), study()
    one.warnings = ["the data is not official", "others took the cores"]
    two.warnings = ["the data is not official"]
    points = [({"batch_size": 1, "threads": 2}, one), ({"batch_size": 8, "threads": 2}, two)]
    assert of_points(points) == [
        "the data is not official", "batch size 1, threads 2: others took the cores",
    ]  # fmt: skip
