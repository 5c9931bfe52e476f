"""The cases of engines in the wide ring, and the case of the gate that stands for each.

`make test-all` runs the wide ring (CONTRIBUTING.md, "Tests").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import pytest

SMOKE = "test_a_network_with_every_layer_passes_the_parity_check"
"""The check that every engine has in the gate."""


class Wide(NamedTuple):
    """Cases of the wide ring: patterns of a test's ID and of its parameters, and what stands for them."""

    test: str
    case: str
    instead: str


RULES = (
    Wide(f"tests/engines/(?!.*{SMOKE})", r"lux", "flux has the same kernels (NNlib), and lux the smoke test"),
    Wide(
        f"tests/engines/(?!.*({SMOKE}|keras/))",
        r"keras\+(jax|torch)",
        "tf has Keras's layers, both have the smoke test",
    ),
    Wide("tests/engines/test_parity", r"flux\+.+", "flux; test_variants shows what each variant changes"),
    Wide(
        "tests/engines/test_.*bug", "flux|jax|tf|keras", "each kind of bug in torch: the check does not know the engine"
    ),
    Wide("tests/engines/test_optimizers", "(flux|jax)-(?!adamw).*", "AdamW with a schedule, and every rule in torch"),
    Wide("tests/engines/.*transformers", "jax", "torch and tf have the same layers, and jax those of `everything`"),
)


def wide_rule(node: str, case: str) -> Wide | None:
    """Return the rule by which a test is a wide one; `case` is the ID of its parameters, joined by "-"."""
    parts = (case, *case.split("-"))
    for rule in RULES:
        if re.match(rule.test, node) and any(re.fullmatch(rule.case, part) for part in parts):
            return rule
    return None


def mark_wide_tests(items: Iterable[pytest.Item]) -> None:
    """Mark the tests of the wide ring."""
    for item in items:
        parameters = getattr(item, "callspec", None)
        if parameters and wide_rule(item.nodeid, parameters.id):
            item.add_marker(pytest.mark.wide)
