"""Table of options: one option per field of a study, with the study's defaults."""

from __future__ import annotations

import pytest

from polybench.cli.options import OPTIONS
from polybench.cli.output import OutputOptions
from polybench.cli.signature import Overrides, make_study
from polybench.errors import BadInput
from polybench.schema.options import Study

PARSED = {"margin": 0.05, "budget": 60.0, "wait_idle": 0.0, "timeout": 600.0}
"""Values of these defaults after typer's parsers."""


def test_each_field_has_an_option_and_each_option_is_a_field_or_a_flag() -> None:
    fields = {*Study.__struct_fields__, *OutputOptions._fields}
    assert set(OPTIONS) - fields == {"quick", "recheck", "strict", "dry_run"}
    assert fields <= set(OPTIONS)


def test_spellings_are_unique() -> None:
    flags = [flag for row in OPTIONS.values() for flag in (row.info.default, *(row.info.param_decls or ()))]
    assert len(set(flags)) == len(flags) >= len(OPTIONS)


def test_the_defaults_of_the_options_make_the_default_study() -> None:
    rows = [row for row in OPTIONS.values() if row.field in Study.__struct_fields__ and row.default is not None]
    assert len(rows) > 10
    given = {row.field: row.read(PARSED.get(row.field, row.default)) for row in rows}
    assert make_study(**given) == Study()
    for field, value in PARSED.items():
        assert OPTIONS[field].info.parser(OPTIONS[field].default) == value


def test_an_error_names_the_option_that_is_out_of_range() -> None:
    assert make_study() == Study()
    with pytest.raises(BadInput, match="--parity-steps"):
        make_study(parity_steps=0)
    with pytest.raises(BadInput, match="--lr-schedule"):
        make_study(lr_schedule=((0, 0.1),))


def test_overrides_replace_only_the_given_fields() -> None:
    study = Study(engines=("fake",), seed=3, prices={"cpu": 0.5}, target_accuracy=0.5)
    assert Overrides().apply(study) == study
    changed = Overrides(seed=0, prices={"cuda": 2.0}).apply(study)
    assert (changed.seed, changed.prices, changed.engines, changed.target_accuracy) == (
        0,
        {"cuda": 2.0},
        ("fake",),
        0.5,
    )
    with pytest.raises(BadInput, match="--momentum"):
        Overrides(momentum=1.5).apply(study)
    with pytest.raises(BadInput, match="add --input pipeline"):
        Overrides(loader_workers=2).apply(study)


@pytest.mark.parametrize(
    ("word", "message"),
    [("xretain", "unknown malloc 'xretain'; did you mean 'retain'"), ("\udc80", r"invalid name '\\udc80'")],
)
def test_an_unknown_word_is_bad_input(word: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make_study(malloc=word)
