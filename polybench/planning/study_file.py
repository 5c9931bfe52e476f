"""Study files: a study written down as TOML. Every error names the file and the line.

The keys are the fields of core.spec.Study, and those of `Extra`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from polybench.core.document.circumstances import Background, Published
from polybench.core.errors import BadInput, said
from polybench.core.machines import MachineGroup, check_machines, split_baseline
from polybench.core.names import pick
from polybench.core.spec import Study, environments_of, refuse_unused_environments, unused_environments
from polybench.data.disk import is_file
from polybench.planning.grid import points
from polybench.planning.network_file import with_network_of
from polybench.planning.plan import check_elsewhere, resolve
from polybench.planning.published_numbers import published_numbers
from polybench.planning.toml_text import Place, TomlText

REFERENCES = "published.toml"
"""Beside the study file, or in the folder above: what the studies' authors printed."""

T = TypeVar("T")

Judge = Callable[[Study], object]
"""Raises BadInput for a study that cannot be measured here, or on any machine."""


class StudyFile(NamedTuple):
    """A study and what its file says beside it."""

    study: Study
    background: Background
    axes: dict[str, list[int]]
    """Of planning.grid; empty where the file is one study and not a sweep."""
    machines: tuple[MachineGroup, ...] = ()
    """On which it is measured, each for itself; none where the file names none."""


class Extra(msgspec.Struct, frozen=True):
    """The keys that are not the study's own."""

    title: str | None = None
    published: str | None = None
    """An entry of the file REFERENCES."""
    quick: bool = False
    """As `--quick`."""
    when_quick: dict[str, Any] = {}
    """The fields that then replace the study's."""
    sweep: dict[str, list[int | bool]] = {}
    """An axis of planning.grid -> its values: the file is as many studies as there are combinations."""
    machines: tuple[MachineGroup, ...] = ()
    """Tables [[machines]]: the file is measured on each of them."""


_STUDY = dict.fromkeys(Study.__struct_fields__)
_EXTRA = dict.fromkeys(Extra.__struct_fields__)
_KEYS = _STUDY | _EXTRA


def read(path: Path, *, quick: bool = False, elsewhere: bool = False) -> StudyFile:
    """A study file and the published numbers that it names.

    Args:
        path: of the file.
        quick: as if the file said `quick = true`.
        elsewhere: another machine measures it, also where the file names none.

    Raises:
        BadInput: it cannot be read, or no machine could run what it says.
    """
    text = TomlText.read(path)
    study, extra = _parse(text, quick, path.parent, elsewhere=elsewhere)
    axes = {axis: [int(value) for value in several] for axis, several in extra.sweep.items()}
    published: list[Published] = []
    _check_machines(text, study, extra, check_elsewhere if elsewhere else resolve)
    try:
        if axes:
            points(study, axes)
    except BadInput as error:
        raise text.error(("sweep",), error) from None
    try:
        if extra.published is not None:
            published = published_numbers(_references(path.parent), extra.published)
    except BadInput as error:
        raise text.error(("published",), error) from None
    return StudyFile(study, Background(extra.title, published), axes, extra.machines)


def _references(folder: Path) -> Path:
    above = folder / ".." / REFERENCES
    return above if is_file(above) and not is_file(folder / REFERENCES) else folder / REFERENCES


def _check_machines(text: TomlText, study: Study, extra: Extra, judge: Judge) -> None:
    place = ("machines",) if extra.machines else ("baseline",)
    try:
        if extra.machines:
            check_machines(study, extra.machines)
            for group in extra.machines:
                check_elsewhere(group.study(study))
        else:
            judge(study)
    except BadInput as error:
        raise text.error(place, error) from None
    if extra.machines and extra.sweep:
        raise text.error(("machines",), BadInput("a sweep is measured on one machine; leave one of both out"))


def parse(text: str, name: str, *, elsewhere: bool = False) -> Study:
    """The study in the text of a study file; `name` is for errors, which are BadInput."""
    return _parse(TomlText(name, text), quick=False, folder=Path(), elsewhere=elsewhere)[0]


def _parse(text: TomlText, quick: bool, folder: Path, *, elsewhere: bool) -> tuple[Study, Extra]:
    table = text.load()
    if not table:
        raise BadInput(f'{text.name} says nothing; write, for example, engines = ["torch", "tf"]')
    if "layers" in table:
        raise text.error(("layers",), f"a network, and no study; try polybench compare --model {text.name}")
    _known(text, (), table, _KEYS, "key")
    table = with_network_of(text, table, (), folder)
    extra = _build(text, _entries({key: table[key] for key in table if key in _EXTRA}), Extra)
    _known(text, ("when_quick",), extra.when_quick, _STUDY, "key of when_quick")
    when_quick = with_network_of(text, extra.when_quick, ("when_quick",), folder)
    own = _entries({key: table[key] for key in table if key in _STUDY})
    kept = {key: entry for key, entry in own.items() if key[0] not in when_quick}
    scaled = kept | _entries(when_quick, "when_quick")
    judge = check_elsewhere if elsewhere or extra.machines else resolve
    studies = [
        _study(text, entries, judge) for entries in (own, scaled)
    ]  # both are checked, whichever it is to be
    _refuse_unused(text, studies[0])
    if not quick and not extra.quick:
        return studies[0], extra
    used = environments_of(studies[1].engines, studies[1].env)  # engines may be others when it is quick
    return msgspec.structs.replace(studies[1], env=used).quick(), extra


def _refuse_unused(text: TomlText, study: Study) -> None:
    try:
        refuse_unused_environments(study)
    except BadInput as error:
        raise text.error(("env", unused_environments(study)[0]), error) from None


def _known(
    text: TomlText, above: Place, table: Mapping[str, Any], keys: Mapping[str, None], what: str
) -> None:
    visible = {key: None for key in keys if key != "handicaps"}
    for key in table:
        if key not in keys:
            try:
                pick(key, visible, what)
            except BadInput as error:
                raise text.error((*above, key), error) from None


_Entries = dict[tuple[str, ...], tuple[Place, Any]]
"""Key in the study -> where the file defines it, and its value. Tables are taken apart."""


def _entries(table: Mapping[str, Any], *above: str) -> _Entries:
    entries: _Entries = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            entries |= {(key, name): ((*above, key, name), part) for name, part in value.items()}
        else:
            entries[key,] = (*above, key), value
    return entries


def _study(text: TomlText, entries: _Entries, judge: Judge) -> Study:
    order = ["env", *_STUDY]  # engines have environments
    by_order = dict(sorted(entries.items(), key=lambda entry: order.index(entry[0][0])))
    return _build(text, by_order, Study, judge)


def _build(text: TomlText, entries: _Entries, kind: type[T], judge: Judge = resolve) -> T:
    """A record of all entries; if it is wrong, the first one to blame is that from which on it is.

    A field of Study depends on earlier ones at most.
    """
    try:
        return _converted(entries, kind, judge)
    except BadInput as whole:
        first: _Entries = {}
        for key, (place, value) in entries.items():
            first[key] = place, value
            try:
                _converted(first, kind, judge)
            except BadInput as error:
                raise text.error(place, error) from None
        raise BadInput(f"{text.name}: {whole}") from None


def _converted(entries: _Entries, kind: type[T], judge: Judge) -> T:
    fields: dict[str, Any] = {}
    for (field, *names), (_, value) in entries.items():
        if names:
            fields.setdefault(field, {})[names[0]] = value
        else:
            fields[field] = value
    try:
        record = msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise BadInput(said(error)) from error
    if isinstance(record, Study):
        machine, cell = split_baseline(record.baseline)  # whether a machine has it, its group says
        judge(msgspec.structs.replace(record, baseline=None if machine else cell))
    return record
