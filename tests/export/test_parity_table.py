from __future__ import annotations

from polybench.core.document.identity import Deviation, Parity
from polybench.export.parity_table import render
from tests.factories import measured, study


def test_each_declared_rule_has_a_block_of_its_own() -> None:
    deviations = [
        Deviation("divided by n", "norm1.running_variance", 2e-3, "Keras"),
        Deviation("four sums", "conv1.weight", 3.2e-3, "Eigen"),
        Deviation("four sums", "norm1.weight", 1e-4, "Eigen"),
    ]
    text = render(study(measured("tf/cpu", 0.01, parity=Parity("pass", deviations=deviations))), ())
    assert text.splitlines()[-6:] == [
        "  declared: divided by n (Keras); from the exact rule:",
        "    norm1.running_variance  2.0e-3",
        "",
        "  declared: four sums (Eigen); from the exact rule:",
        "    conv1.weight  3.2e-3",
        "    norm1.weight  1.0e-4",
    ]


def test_each_cell_has_its_verdict_and_the_reason_of_a_failure() -> None:
    text = render(
        study(
            measured("torch/cpu", 0.01),
            measured("tf/cpu", 0.01, parity=Parity("fail", "loss 3.1e-2 from the reference")),
            measured("flux/cpu", 0.01, parity=Parity("skipped")),
        ),
        (),
    )
    assert text.split("\n\n")[1:] == [
        "torch/cpu: identical",
        "tf/cpu: DIFFERS: loss 3.1e-2 from the reference",
        "flux/cpu: not checked\n",
    ]
