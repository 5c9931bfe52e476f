"""Reads study files (TOML). Every error names the file and the line.

The keys are the fields of schema.options.Study and of StudyFileExtras.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from polybench.data.disk import is_file, read_regular_file
from polybench.errors import BadInput, format_validation_error, lookup_or_suggest
from polybench.networks import MODELS
from polybench.networks.model import Model
from polybench.networks.network_file import network_of, slug, with_fingerprint
from polybench.networks.toml_text import KeyPath, TomlText
from polybench.planning.grid import points
from polybench.planning.plan import check_remote, resolve
from polybench.schema.metadata import PublishedResult, StudyFileMetadata, Tag
from polybench.schema.options import (
    MachineGroup,
    Study,
    SweepCommand,
    check_machine_groups,
    environments_of,
    reject_unused_environments,
    split_baseline,
    unused_environments,
)

REFERENCES = "published.toml"
"""The file of published results, next to the study file or in the folder above."""

NETWORK_SUFFIX = ".toml"
"""Distinguishes a network's file from the name of a built-in network."""

_MAX_BYTES = 1 << 20
"""Maximum size of a TOML file; a study file of a hundred lines has 4 KB."""

T = TypeVar("T")

StudyCheck = Callable[[Study], object]
"""Function that raises BadInput for a study that cannot be measured here, or on any machine."""


class StudyFile(NamedTuple):
    """A study and the other content of its file."""

    study: Study
    metadata: StudyFileMetadata
    axes: dict[str, list[int]]
    """Axes of planning.grid; empty without a sweep."""
    machines: tuple[MachineGroup, ...] = ()
    """Machines to measure on; empty if the file names none."""
    command: SweepCommand = "sweep"
    """The command that renders a sweep."""


class StudyFileExtras(msgspec.Struct, frozen=True):
    """The keys that are not fields of Study."""

    title: str | None = None
    tags: tuple[Tag, ...] = ()
    published: str | None = None
    """Key of an entry in the file REFERENCES."""
    quick: bool = False
    """Same as `--quick`."""
    quick_overrides: dict[str, Any] = {}
    """Fields that replace the study's with `--quick`."""
    sweep: dict[str, list[int | bool]] = {}
    """Values by axis of planning.grid; the file is one study per combination."""
    machines: tuple[MachineGroup, ...] = ()
    """Tables [[machines]]; each measures the study."""


_STUDY = Study.__struct_encode_fields__
_EXTRA = StudyFileExtras.__struct_fields__


def read_toml(path: Path) -> TomlText:
    """Read a TOML file; raise BadInput if that fails."""
    try:
        content = read_regular_file(path, _MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"cannot read {path}: byte {error.start} is not UTF-8, which TOML requires") from error
    except (OSError, ValueError) as error:  # ValueError: an invalid file name
        raise BadInput(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    # Without a line feed at the end, tomllib reports no line for an error there.
    return TomlText(str(path), content.replace("\r\n", "\n") + "\n")


def read_network(file: str | Path, folder: Path = Path()) -> Model:
    """Read the network of a file; a relative path starts at `folder`.

    BadInput has the file's name and the line.
    """
    try:
        path = folder / Path(file).expanduser()
    except RuntimeError as error:  # no such user
        raise BadInput(f"cannot read {file}: {error}") from None
    text = read_toml(path)
    table = text.load()
    if not {"layers", "input", "classes"} & set(table):
        raise BadInput(
            f"{path} is not a network file: it has no layers; `polybench models lenet --format toml` prints an example"
        )
    return network_of(text, table, default_name=slug(path.stem))


def with_network(study: Study) -> Study:
    """Replace a `model` that is a file, or a name of another package, by its network; BadInput if that fails."""
    return msgspec.structs.replace(study, model=_network(study.model))


def _network(model: str | Model, folder: Path = Path()) -> str | Model:
    """Return the network of a file or of another package, so that saved studies contain it; else the name."""
    if isinstance(model, Model):
        return model
    if model.endswith(NETWORK_SUFFIX):
        return read_network(model, folder)
    is_external = model not in MODELS and model in MODELS.names()
    return with_fingerprint(MODELS.find(model)) if is_external else model


def replace_network(
    text: TomlText, table: dict[str, Any], above: KeyPath = (), folder: Path = Path()
) -> dict[str, Any]:
    """Replace a `model` as `with_network` does, also a table, in the fields of a study at the key path `above`.

    A relative path starts at `folder`. BadInput has the lines in both files.
    """
    model, place = table.get("model"), (*above, "model")
    if isinstance(model, dict):
        return table | {"model": network_of(text, model, place)}
    if not isinstance(model, str):
        return table
    with text.errors_at(place):
        return table | {"model": _network(model, folder)}


def read(path: Path, *, quick: bool = False, remote: bool = False) -> StudyFile:
    """Read a study file and its published results.

    `quick` reads it as if it had the key; `remote` checks it for another machine, even if the file names none.
    Raises BadInput if the file cannot be read, or the study is invalid on any machine.
    """
    text = read_toml(path)
    study, extra = _parse(text, quick, path.parent, remote=remote)
    axes = {axis: _axis(text, axis, several) for axis, several in extra.sweep.items()}
    published: list[PublishedResult] = []
    _check_machines(text, study, extra, check_remote if remote else resolve)
    if axes:
        with text.errors_at(("sweep",)):
            points(study, axes)
    if extra.published is not None:
        with text.errors_at(("published",)):
            published = published_numbers(_references(path.parent), extra.published)
    return StudyFile(study, StudyFileMetadata(extra.title, published, tags=extra.tags), axes, extra.machines)


def _axis(text: TomlText, axis: str, values: list[int | bool]) -> list[int]:
    """Return the values of a sweep; only those of `augment` may be booleans."""
    for value in values:
        if isinstance(value, bool) and axis != "augment":
            raise text.error(("sweep", axis), f"{axis} has {str(value).lower()}: expected integers, such as [16, 32]")
    return [int(value) for value in values]


def _references(folder: Path) -> Path:
    above = folder / ".." / REFERENCES
    return above if is_file(above) and not is_file(folder / REFERENCES) else folder / REFERENCES


def _check_machines(text: TomlText, study: Study, extra: StudyFileExtras, check: StudyCheck) -> None:
    if not extra.machines:
        with text.errors_at(("baseline",)):
            check(study)
        return
    with text.errors_at(("machines",)):
        check_machine_groups(study, extra.machines)
        for group in extra.machines:
            check_remote(group.study(study))
        if extra.sweep:
            raise BadInput("a sweep runs on one machine: remove [sweep] or [[machines]]")


def parse(text: str, name: str, *, remote: bool = False) -> Study:
    """Return the study in the text of a study file; raise BadInput with `name` in the message."""
    return _parse(TomlText(name, text), quick=False, folder=Path(), remote=remote)[0]


def stored_study(text: str, id: str) -> Study:
    """Return the study in the text of a saved one, whatever this machine could measure of it.

    Raises:
        BadInput: another version of polybench wrote it, with unknown settings.
    """
    try:
        toml = TomlText(f"the study of {id}", text)
        return msgspec.convert(replace_network(toml, toml.load()), Study)
    except (msgspec.ValidationError, BadInput) as error:
        raise BadInput(f"cannot read the settings of study {id}: {error}") from error


def _parse(text: TomlText, quick: bool, folder: Path, *, remote: bool) -> tuple[Study, StudyFileExtras]:
    table = text.load()
    if not table:
        raise BadInput(f'{text.name} is empty: write, for example, engines = ["torch", "tf"]')
    if "layers" in table:
        raise text.error(
            ("layers",), f"this is a network file, not a study file: use polybench compare --model {text.name}"
        )
    _check_keys(text, table, (), (*_STUDY, *_EXTRA), "key")
    table = replace_network(text, table, (), folder)
    extra = _build(text, _entries({key: table[key] for key in table if key in _EXTRA}), StudyFileExtras)
    _check_keys(text, extra.quick_overrides, ("quick_overrides",), _STUDY, "key of quick_overrides")
    quick_overrides = replace_network(text, extra.quick_overrides, ("quick_overrides",), folder)
    own = _entries({key: table[key] for key in table if key in _STUDY})
    unchanged = {key: entry for key, entry in own.items() if key[0] not in quick_overrides}
    scaled = unchanged | _entries(quick_overrides, "quick_overrides")
    check = check_remote if remote or extra.machines else resolve
    studies = [_study(text, entries, check) for entries in (own, scaled)]  # checks both, whichever is used
    for name in unused_environments(studies[0])[:1]:
        with text.errors_at(("env", name)):
            reject_unused_environments(studies[0])
    if not quick and not extra.quick:
        return studies[0], extra
    used = environments_of(studies[1].engines, studies[1].env)  # quick_overrides may change the engines
    return msgspec.structs.replace(studies[1], env=used).quick(), extra


def _check_keys(text: TomlText, table: Mapping[str, Any], place: KeyPath, keys: Iterable[str], what: str) -> None:
    """Reject unknown keys, without suggesting `injected_delays`, which is for tests."""
    given, visible = ([key for key in several if key != "injected_delays"] for several in (table, keys))
    text.check_keys(given, place, visible, what)


_Entries = dict[tuple[str, ...], tuple[KeyPath, Any]]
"""Key in the study -> (key path in the file, value). Tables are flattened."""


def _entries(table: Mapping[str, Any], *above: str) -> _Entries:
    entries: _Entries = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            entries |= {(key, name): ((*above, key, name), part) for name, part in value.items()}
        else:
            entries[key,] = (*above, key), value
    return entries


def _study(text: TomlText, entries: _Entries, check: StudyCheck) -> Study:
    order = ["env", *_STUDY]  # engines have environments
    by_order = dict(sorted(entries.items(), key=lambda entry: order.index(entry[0][0])))
    return _build(text, by_order, Study, check)


def _build(text: TomlText, entries: _Entries, kind: type[T], check: StudyCheck = resolve) -> T:
    """Build a record of all entries; report the first entry that makes it invalid.

    A field of Study depends only on earlier fields.
    """
    try:
        return _converted(entries, kind, check)
    except BadInput as whole:
        first: _Entries = {}
        for key, (place, value) in entries.items():
            first[key] = place, value
            try:
                _converted(first, kind, check)
            except BadInput as error:
                raise text.error(place, error) from None
        raise BadInput(f"{text.name}: {whole}") from None


def _converted(entries: _Entries, kind: type[T], check: StudyCheck) -> T:
    fields: dict[str, Any] = {}
    for (field, *names), (_, value) in entries.items():
        if names:
            fields.setdefault(field, {})[names[0]] = value
        else:
            fields[field] = value
    try:
        record = msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise BadInput(format_validation_error(error)) from error
    if isinstance(record, Study):
        machine, configuration = split_baseline(record.baseline)  # the machine group checks its configurations
        check(msgspec.structs.replace(record, baseline=None if machine else configuration))
    return record


class _Number(PublishedResult, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published result, of which the publication provides what is missing."""

    source: str = ""

    def __post_init__(self) -> None:
        if self.configuration is not None and self.metric in ("epoch_time", "step_time") and self.unit != "s":
            raise ValueError(f'{self.metric} is compared in seconds, not in {self.unit!r}: write unit = "s"')


class _Publication(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    numbers: list[_Number]
    model: str | None = None
    batch_size: int | None = None
    items_per_epoch: int | None = None


def published_numbers(path: Path, name: str) -> list[PublishedResult]:
    """Return the numbers of the publication `name`, in the file's order."""
    text = read_toml(path)
    entry = lookup_or_suggest(name, text.load(), f"publication in {path}")
    try:
        publication = msgspec.convert(entry, _Publication)
    except msgspec.ValidationError as error:
        raise text.error((name,), error) from error
    return [
        PublishedResult(
            **msgspec.structs.asdict(number)
            | {
                "source": number.source or publication.source,
                "model": number.model or publication.model,
                "batch_size": number.batch_size or publication.batch_size,
                "items_per_epoch": number.items_per_epoch or publication.items_per_epoch,
            }
        )
        for number in publication.numbers
    ]
