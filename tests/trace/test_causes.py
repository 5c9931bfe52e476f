"""Evidence in the sentences of causes."""

from __future__ import annotations

import pytest

from polybench.trace.causes import _known_digits


@pytest.mark.parametrize(
    ("n", "error", "text"),
    [
        (1024.02, 0.1, "1024"),
        (1027.3, 4.0, "about 1030"),
        (1027.3, 40.0, "about 1000"),
        (32.0001, 0.49, "32"),
        (63.7, 0.6, "about 60"),
    ],
)
def test_a_fitted_size_has_only_the_digits_that_are_known(n: float, error: float, text: str) -> None:
    assert _known_digits(n, error) == text
