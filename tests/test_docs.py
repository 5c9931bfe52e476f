"""The text of the docs: links, examples and numbers. test_site.py builds the site."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polybench.cli import app, output
from polybench.schema.metadata import UNKNOWN_HOST
from polybench.schema.metrics import METRICS
from polybench.storage.store import Store
from tests.gallery import GALLERY, figures, sweeps

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED_NUMBER = re.compile(r'\[([^]]+)\]\((\S+\.jsonl) "(\S+) (\w+)"\)')
"""Numbers such as `[38.2 ms](gallery/measured/ID.jsonl "flux/cpu step_time")`."""
EXAMPLE = re.compile(r"<!-- output of: polybench (.+) -->\n+```\n(.+?\n)```", re.S)
"""Commands such as `<!-- output of: polybench show ID -->` and what they print; a line `...` stands for any lines."""


def test_each_failure_names_existing_tests() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs/failures.md").read_text())
    assert len(named) > 30
    for file, name in named:
        assert not name or f"def {name}(" in (ROOT / file).read_text(), f"{file}::{name}"


def test_gallery_studies_are_complete_anonymous_and_have_figures() -> None:
    store = Store(GALLERY / "measured")
    documents = [*store.studies(), *store.others("layers"), *sweeps(store)]
    assert {one.host.hostname for one in documents} == {UNKNOWN_HOST}
    assert all(study.finished for study in store.studies())
    assert {path.stem for path in (GALLERY / "figures").iterdir()} == set(figures(store))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_examples_and_numbers_of_a_page_are_true(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = page.read_text()
    links = re.findall(r"\]\((?!http|#)([^) #]+)", text)
    # As on GitHub; the reference exists on the site only.
    assert not [link for link in links if not (page.parent / link).exists() and "reference/" not in link]
    monkeypatch.setattr(output, "terminal_width", lambda: 80)
    for command, example in EXAMPLE.findall(text):
        printed = CliRunner().invoke(app, command.split()).stdout
        assert doctest.OutputChecker().check_output(f"...{example}...", printed, doctest.ELLIPSIS), printed
    for number, file, configuration, column in LINKED_NUMBER.findall(text):
        shown = METRICS[column].text(Store(ROOT).load(str(page.parent / file)).result(configuration))
        assert " ".join(shown.split()).partition(" ±")[0] == number, f"{file}: {configuration} {column}"
    if not {"upstream", "notebooks"} & {*page.parts}:
        assert not _times_without_source(text)


def _times_without_source(text: str) -> list[str]:
    """Return the sections that have a time, but neither a saved document nor a benchmark."""
    without_examples = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    return [
        section
        for section in re.split(r"^#+ ", without_examples, flags=re.M)
        if re.search(r"\d (?:µs|ms)\b|\d\.\d+ s\b(?! [+-])", re.sub(r"`[^`]*`", "", section))
        and not re.search(r"gallery/measured/|measured/\d|benchmarks", section)
    ]
