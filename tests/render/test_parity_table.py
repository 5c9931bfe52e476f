from __future__ import annotations

from polybench.render.parity_table import render
from polybench.schema.parity import KnownDeviation, ParityCheck
from tests.factories import measured, study


def test_each_known_deviation_has_a_block() -> None:
    deviations = [
        KnownDeviation("divided by n", "norm1.running_variance", 2e-3, "Keras"),
        KnownDeviation("four sums", "conv1.weight", 3.2e-3, "Eigen"),
        KnownDeviation("four sums", "norm1.weight", 1e-4, "Eigen"),
    ]
    text = render(study(measured("tf/cpu", 0.01, parity=ParityCheck("pass", known_deviations=deviations))), ())
    assert text.splitlines()[-6:] == [
        "  known deviation: divided by n (Keras); errors:",
        "    norm1.running_variance  2.0e-3",
        "",
        "  known deviation: four sums (Eigen); errors:",
        "    conv1.weight  3.2e-3",
        "    norm1.weight  1.0e-4",
    ]


def test_each_configuration_has_a_status_and_a_reason_for_failure() -> None:
    text = render(
        study(
            measured("torch/cpu", 0.01),
            measured("tf/cpu", 0.01, parity=ParityCheck("fail", "loss 3.1e-2 from the reference")),
            measured("flux/cpu", 0.01, parity=ParityCheck("skipped")),
        ),
        (),
    )
    assert text.split("\n\n")[1:] == [
        "torch/cpu: identical",
        "tf/cpu: DIFFERS: loss 3.1e-2 from the reference",
        "flux/cpu: not checked\n",
    ]
