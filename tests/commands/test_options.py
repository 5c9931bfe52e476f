"""The table of options: each field of a study once, with the study's own defaults."""

from __future__ import annotations

import pytest

from polybench.commands.changes import Changes, make_study
from polybench.commands.options import OPTIONS
from polybench.commands.presentation import Presentation
from polybench.core.errors import BadInput
from polybench.core.spec import Study

PARSED = {"target": 0.05, "budget": 60.0, "patience": 0.0, "timeout": 600.0}
"""What typer's parsers make of these defaults before they are read."""


def test_each_field_has_an_option_and_each_option_a_field_or_flag() -> None:
    fields = {*Study.__struct_fields__, *Presentation._fields}
    assert set(OPTIONS) - fields == {"quick", "recheck", "strict", "dry_run"}
    assert fields <= set(OPTIONS)


def test_no_spelling_is_used_twice() -> None:
    flags = [flag for row in OPTIONS.values() for flag in (row.info.default, *(row.info.param_decls or ()))]
    assert len(set(flags)) == len(flags) >= len(OPTIONS)


def test_the_defaults_of_the_options_make_the_default_study() -> None:
    rows = [
        row for row in OPTIONS.values() if row.field in Study.__struct_fields__ and row.default is not None
    ]
    assert len(rows) > 10
    given = {row.field: row.read(PARSED.get(row.field, row.default)) for row in rows}
    assert make_study(**given) == Study()
    for field, value in PARSED.items():
        assert OPTIONS[field].info.parser(OPTIONS[field].default) == value


def test_a_study_names_the_option_that_is_out_of_range() -> None:
    assert make_study() == Study()
    with pytest.raises(BadInput, match="--parity-steps"):
        make_study(parity_steps=0)
    with pytest.raises(BadInput, match="--schedule"):
        make_study(schedule=((0, 0.1),))


def test_changes_replace_only_what_was_given() -> None:
    study = Study(engines=("fake",), seed=3, prices={"cpu": 0.5}, until={"accuracy": 0.5})
    assert Changes().applied_to(study) == study
    changed = Changes(seed=0, prices={"cuda": 2.0}).applied_to(study)
    assert (changed.seed, changed.prices, changed.engines, changed.until) == (
        0,
        {"cuda": 2.0},
        ("fake",),
        {"accuracy": 0.5},
    )
    with pytest.raises(BadInput, match="--momentum"):
        Changes(momentum=1.5).applied_to(study)
    with pytest.raises(BadInput, match="add --input pipeline"):
        Changes(workers=2).applied_to(study)


@pytest.mark.parametrize("key", ["xaccuracy", "\udc80accuracy"])
def test_a_key_that_is_none_is_bad_input(key: str) -> None:
    with pytest.raises(BadInput, match="accuracy"):
        make_study(until={key: 0.5})
