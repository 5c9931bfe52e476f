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
