"""The tables of the README and the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.engines import ENGINES
from polybench.networks import MODEL_NAMES, MODELS
from polybench.networks.optimizers import OPTIMIZERS
from polybench.render import FORMATS
from polybench.schema.metrics import METRICS
from tests import cuda_levels, readme


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.name)
def test_tables_of_a_page_are_current(page: Path) -> None:
    text = page.read_text("utf-8")
    assert readme.with_tables(text) == text, "write them anew: make readme"


@pytest.mark.parametrize("table", readme.TABLES)
def test_each_table_is_on_one_page(table: str) -> None:
    begin = f"<!-- {table}: written by make readme -->"
    assert sum(page.read_text("utf-8").count(begin) for page in readme.PAGES) == 1


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("columns", METRICS),
        ("formats", FORMATS),
        ("networks", MODEL_NAMES),
        ("optimizers", OPTIMIZERS),
        ("engines", ENGINES),
        ("matrix", [name for name in MODELS if name != "catdog-2"]),
        ("ran", [name for name, row in ENGINES.items() if row.extra]),
    ],
)
def test_a_table_has_every_row_of_the_code(table: str, names: list[str]) -> None:
    text = readme.TABLES[table]()
    assert not [name for name in names if f"`{name}`" not in text]


def test_the_levels_of_cuda_tests_are_current() -> None:
    assert {test.level for test in cuda_levels.find()} <= {*cuda_levels.LEVELS}
    assert {test.engine for test in cuda_levels.find()} >= {
        name for name, row in ENGINES.items() if row.computes and "cuda" in row.devices
    }


def test_engines_of_the_level_run_are_those_of_the_table() -> None:
    ran = {
        configuration for passed in readme.GPU_TESTS.values() for configuration in passed if configuration in ENGINES
    }
    assert {test.engine for test in cuda_levels.find() if test.level == "run"} - {"meters"} == ran


def test_the_program_and_the_docs_agree_about_cuda() -> None:
    """`polybench engines` reads no saved studies, so its texts follow the table."""
    for line in readme.ran().splitlines()[2:]:
        configuration, _, on_cuda = (part.strip(" `") for part in line.strip("|").split("|"))
        if configuration in ENGINES and on_cuda != "-":
            assert ("has not been tested" in ENGINES[configuration].runs_on) == (on_cuda == "never run"), configuration


def test_variants_that_have_never_run_are_experimental() -> None:
    for line in readme.ran().splitlines()[2:]:
        configuration, *places = (part.strip(" `") for part in line.strip("|").split("|"))
        engine, _, name = configuration.partition("+")
        if name in (variants := ENGINES[engine].variants):
            assert variants[name].experimental == (set(places) <= {"never run", "-"}), configuration
