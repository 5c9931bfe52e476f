"""Which cases of engines belong to the wide ring: those that another case of the gate stands for.

`make test-all` and the nightly workflow run them; DESIGN of the rings: CONTRIBUTING.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import pytest

SMOKE = "test_a_network_with_every_layer_passes_the_parity_check"
"""The check that every engine has in the gate."""


class Wide(NamedTuple):
    """Cases of the wide ring: patterns of the test's node ID and of one of its parameters, and what stands for them."""

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


def wide_rule(node: str, parameters: Iterable[str]) -> Wide | None:
    """Return the rule by which a test with these parameters, and their sequence joined by "-", is a wide one."""
    cases = [*parameters]
    return next(
        (rule for rule in RULES if re.match(rule.test, node) and any(re.fullmatch(rule.case, one) for one in cases)),
        None,
    )


def mark_wide_tests(items: Iterable[pytest.Item]) -> None:
    """Mark the tests of the wide ring."""
    for item in items:
        case = getattr(item, "callspec", None)
        if case and wide_rule(item.nodeid, (case.id, *case.id.split("-"))):
            item.add_marker(pytest.mark.wide)
