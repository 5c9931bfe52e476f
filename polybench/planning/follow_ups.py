"""Studies that would tell more about a finished one, and the command lines that measure them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput
from polybench.core.model import Model
from polybench.core.names import EngineName
from polybench.core.spec import Study, environments_of
from polybench.engines import ENGINES
from polybench.planning.network_file import file_of, with_network_of
from polybench.planning.toml_text import TomlText

_DEFAULTS = msgspec.structs.asdict(Study())
_OTHER_SPELLING = {"handicaps": "handicap", "prices": "price"}

_NOT_FOR_LAYERS = (
    "input", "workers", "augment", "epochs", "accuracy", "until", "metrics", "prices", "replicas",
)  # fmt: skip
_NOT_FOR_SERIES = ("epochs", "accuracy", "until", "prices", "workers", "replicas")
_NOT_FOR_CHECK = (
    "processes", "rounds", "steps", "target", "epochs", "accuracy", "until", "budget", "patience", "parity",
    "metrics", "prices",
)  # fmt: skip
"""Fields of a study that are no options of `layers`, of `sweep` and `overhead`, of `parity`."""


def measured_study(document: StudyDocument) -> Study:
    """The study as it was measured, its threads written out.

    Raises:
        BadInput: another version of polybench wrote it, with settings that this one does not know.
    """
    try:
        text = TomlText(f"the study of {document.id}", document.study)
        study = msgspec.convert(with_network_of(text, text.load()), Study)
    except (msgspec.ValidationError, BadInput) as error:
        raise BadInput(f"cannot read the settings of study {document.id}: {error}") from error
    return msgspec.structs.replace(study, threads=document.settings.threads)


def for_layers(study: Study, cells: Sequence[Result]) -> Study | None:
    """The study of these cells' layers, repeats included; None in a precision in which they have no times."""
    precisions = tuple(name for name in study.precisions if name != "bf16")
    if study.precisions[0] == "bf16":
        return None
    # An engine has as many cells on each device, and at each precision, as it is named.
    named = Counter((engine_of(cell), cell.device, cell.workload.precision) for cell in cells)
    engines = [
        name
        for name in dict.fromkeys(map(engine_of, cells))
        for _ in range(max(number for (engine, *_), number in named.items() if engine == name))
    ]
    alone = _only(study, engines, _NOT_FOR_LAYERS)
    return msgspec.structs.replace(alone, precision=precisions[0] if len(precisions) == 1 else precisions)


def for_series(study: Study, engines: Iterable[str], axis: str) -> Study:
    """What a sweep over this field needs to know besides."""
    return _only(study, dict.fromkeys(engines), (*_NOT_FOR_SERIES, axis))


def for_check(study: Study, engine: str) -> Study:
    """What the identity check of this engine needs to know."""
    return _only(study, [engine], _NOT_FOR_CHECK)


def for_comparison(study: Study, engines: Iterable[str], **changes: Any) -> Study:
    """The study once more with other engines, and other values of some fields."""
    return msgspec.structs.replace(_only(study, dict.fromkeys(engines), ()), **changes)


def _only(study: Study, engines: Iterable[str], without: Iterable[str]) -> Study:
    """Without what names cells, which may not be there any more."""
    defaults = {name: _DEFAULTS[name] for name in (*without, "baseline", "handicaps")}
    alone = msgspec.structs.replace(study, engines=tuple(engines), **defaults)
    return msgspec.structs.replace(alone, env=environments_of(alone.engines, study.env))


def engine_of(result: Result) -> str:
    """As it is asked for: `torch+compile@nightly`."""
    return result.engine_name


def has_layers(result: Result) -> bool:
    """Whether the layers of this cell can have times: not where its step is timed as a whole only."""
    row = ENGINES.get(result.engine)
    whole = row is not None and not row.times_layers((result.variant or "").split("+"))
    return not whole and result.workload.precision != "bf16" and result.workload.replicas == 1


def other_variants(result: Result) -> list[str]:
    """The plain engine and each single variant that this cell's device could run, but not itself.

    Of sizes of pools of threads the first stands for all: what they bring is for a sweep to say.
    """
    row = ENGINES.get(result.engine)
    if row is None or not row.does_arithmetic:
        return []
    sizes = [name for name, variant in row.variants.items() if variant.pools]
    variants = [
        (name,)
        for name, variant in row.variants.items()
        if (result.device != "cpu" or not variant.cuda_only)
        and name not in sizes[1:]
        and not (variant.lesson or variant.besides)
    ]
    names = [str(EngineName(result.engine, variant, result.environment)) for variant in ((), *variants)]
    return [name for name in names if name != engine_of(result)]


def command_line(command: str, study: Study, *more: str) -> str:
    """What is typed to measure this study; `more` are words of the command's own."""
    words = [word for field in Study.__struct_fields__ for word in _words(field, getattr(study, field))]
    return shlex.join(["polybench", command, *words, *more])


def _words(field: str, value: Any) -> Iterator[str]:
    if value == _DEFAULTS[field] and field != "engines":  # whom it is about is said in any case
        return
    option = f"--{_OTHER_SPELLING.get(field, field).replace('_', '-')}"
    if isinstance(value, Model):  # where its file is, a study does not say
        yield from (option, file_of(value))
    elif isinstance(value, bool):
        yield option if value else option.replace("--", "--no-", 1)
    elif isinstance(value, dict) or field == "schedule":
        for name, number in value.items() if isinstance(value, dict) else value:
            yield from (option, f"{name}={number}")
    else:
        yield from (option, ",".join(map(str, value)) if isinstance(value, tuple) else str(value))
