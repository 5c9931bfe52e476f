from __future__ import annotations

from polybench.render import render
from polybench.schema.parity import KnownDeviation, ParityCheck
from tests.factories import measured, study


def test_known_deviations_are_grouped_by_rule() -> None:
    deviations = [
        KnownDeviation("divided by n", "norm1.running_variance", 2e-3, "Keras"),
        KnownDeviation("four sums", "conv1.weight", 3.2e-3, "Eigen"),
        KnownDeviation("four sums", "norm1.weight", 1e-4, "Eigen"),
    ]
    document = study(measured("tf/cpu", 0.01, parity=ParityCheck("pass", known_deviations=deviations)))
    *_, first, first_rows, second, second_rows = render(document, kind="parity").split("\n\n")
    assert first == "known deviation: divided by n (Keras)"
    assert first_rows.splitlines()[-1].split() == ["norm1.running_variance", "2.0e-3"]
    assert second == "known deviation: four sums (Eigen)"
    assert [line.split()[0] for line in second_rows.splitlines()[2:]] == ["conv1.weight", "norm1.weight"]


def test_each_configuration_has_a_status_and_a_reason_for_failure() -> None:
    document = study(
        measured("torch/cpu", 0.01),
        measured("tf/cpu", 0.01, parity=ParityCheck("fail", "loss 3.1e-2 from the reference")),
        measured("flux/cpu", 0.01, parity=ParityCheck("skipped")),
    )
    assert render(document, kind="parity").split("\n\n")[1:] == [
        "torch/cpu: same",
        "tf/cpu: DIFFERS: loss 3.1e-2 from the reference",
        "flux/cpu: not checked\n",
    ]
