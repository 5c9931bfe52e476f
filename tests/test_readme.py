"""The README's tables."""

from __future__ import annotations

import pytest

from polybench.core.optimizers import OPTIMIZERS
from polybench.engines import ENGINES
from polybench.export import FORMATS
from polybench.metrics import METRICS
from polybench.models import MODELS, NAMES
from tests import readme


def test_the_readme_has_the_tables_that_the_code_makes() -> None:
    text = readme.README.read_text("utf-8")
    assert readme.with_tables(text) == text, "write them anew: make readme"


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("columns", METRICS),
        ("formats", FORMATS),
        ("networks", NAMES),
        ("optimizers", OPTIMIZERS),
        ("engines", ENGINES),
        ("matrix", [name for name in MODELS if name != "catdog-2"]),
    ],
)
def test_a_table_has_every_row_of_the_code(table: str, names: list[str]) -> None:
    text = readme.TABLES[table]()
    assert not [name for name in names if f"`{name}`" not in text]


def test_a_metric_without_a_group_is_in_the_last_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readme, "GROUPS", {"times": ("step_time",), "all": tuple(METRICS)})
    *_, times, last = readme.columns().splitlines()
    assert times == "| `times` | `step_time` (s) |"
    assert last.startswith("| no group | `throughput` (images/s), ")


def test_missing_markers_are_named() -> None:
    with pytest.raises(ValueError, match="columns: written by make readme"):
        readme.with_tables("# polybench\n")
