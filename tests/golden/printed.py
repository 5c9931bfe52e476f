"""What polybench prints about documents of every kind, in every format: tables, notes, figures and the HTML report.

The documents are invented, and no two of their numbers and texts are alike, so that a value in the place of another one
shows. `python -m tests.golden` writes `printed.txt` again after an intended change; its diff shows what has moved.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import types
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from polybench.analysis.diff import diff
from polybench.analysis.explanation import SavedDocuments, explain
from polybench.analysis.merge import merge
from polybench.errors import BadInput
from polybench.figures import FIGURES, draw
from polybench.figures.figure import Figure
from polybench.figures.image_export import caption_for
from polybench.html_report import StudySection, render_report
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.render import EXPLANATION_FORMATS, explanation, render
from polybench.schema.analyses import BisectDocument
from polybench.schema.documents import kind_of
from polybench.schema.imported import ImportDocument
from polybench.schema.measurements import AllocationsDocument
from polybench.schema.trace import TraceDiffDocument, TraceSummary
from tests.factories import measured, saved_again, typical_study
from tests.figures.documents import (
    full_history,
    full_layers,
    full_overhead,
    full_peak,
    full_study,
    full_sweep,
    with_peaks,
)

FILE = Path(__file__).with_name("printed.txt")


class Filler:
    """Fills what a document lacks with values that are unlike each other."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def fill(self, value: Any, kind: Any, name: str) -> Any:
        """Return the value with all its missing parts."""
        if isinstance(value, Optimizer):
            return value
        if isinstance(value, msgspec.Struct):
            hints = get_type_hints(type(value), include_extras=True)
            for field in value.__struct_fields__:
                if field not in _KEPT:
                    new = self.fill(getattr(value, field), hints[field], field)
                    value = self._replaced(value, field, new)
            return value
        if value in (None, [], {}, ()):
            try:
                return self.make(kind, name)
            except ValueError:  # values that do not fit together
                return value
        if isinstance(value, list):
            return [self.fill(one, get_args(_plain(kind))[0], name) for one in value]
        return value

    @staticmethod
    def _replaced(value: msgspec.Struct, field: str, new: Any) -> msgspec.Struct:
        """Return the struct with the field, unless its type refuses the value."""
        try:
            changed = msgspec.structs.replace(value, **{field: new})
            msgspec.convert(msgspec.to_builtins(changed), type(value))
        except (msgspec.ValidationError, ValueError, TypeError):
            return value
        return changed

    def make(self, kind: Any, name: str) -> Any:
        """Return a value of a type."""
        kind = _plain(kind)
        origin, arguments = get_origin(kind), get_args(kind)
        number = next(self._count)
        if kind in _SCALARS:
            return _SCALARS[kind](name, number)
        return arguments[-1] if origin is Literal else self._make_parts(kind, origin, arguments, name, number)

    def _make_parts(self, kind: Any, origin: Any, arguments: tuple[Any, ...], name: str, number: int) -> Any:
        if origin is list:
            return [self.make(arguments[0], name) for _ in range(2)]
        if origin is dict:
            keys = [f"{name} {number}", f"{name} {number + 1}"] if _plain(arguments[0]) is str else [0, 1]
            return {key: self.make(arguments[1], name) for key in keys}
        if origin is tuple:
            return tuple(self.make(one, name) for one in (arguments[:1] * 2 if Ellipsis in arguments else arguments))
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._make_struct(kind)
        return None

    def _make_struct(self, kind: type[msgspec.Struct]) -> Any:
        if kind in (Optimizer, Model):
            return Optimizer() if kind is Optimizer else None
        hints = get_type_hints(kind, include_extras=True)
        fields = [one.name for one in msgspec.structs.fields(kind) if one.required or one.name not in _KEPT]
        return kind(**{field: self.make(hints[field], field) for field in fields})


_SCALARS: dict[Any, Callable[[str, int], Any]] = {
    bool: lambda _, _number: True,
    int: lambda _, number: 100 + number,
    float: lambda _, number: 0.001 * (100 + number),
    str: lambda name, number: f"{name} {number}",
}

_KEPT = {
    *("schema", "argv", "study", "created", "interrupted", "resumed", "environment", "variant", "repeat"),
    *("hint", "log_path", "inconclusive_reason", "reason"),
}
"""Fields whose absence is a case of its own."""


def _plain(kind: Any) -> Any:
    if get_origin(kind) is Annotated:
        return _plain(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return _plain(next(one for one in get_args(kind) if one is not type(None)))
    return kind


def filled(document: Any) -> Any:
    """Return the document with a value in every field that may have one."""
    return Filler().fill(document, type(document), "")


def _documents() -> dict[str, Any]:
    study, typical = full_study(), typical_study()
    layers = with_peaks(full_layers(study))
    other = saved_again(typical, threads=4, seed=3)
    other.results[0] = measured("torch/cpu", 0.0201, versions={"torch": "2.14.0"})
    plain = {
        "typical study": typical,
        "layers": layers,
        "sweep": full_sweep(),
        "overhead": full_overhead(),
        "peak": full_peak(),
        "history": full_history(),
        "diff": diff(typical, other),
        "merge": merge([typical, other], {"cpu": 3.6}),
        "explanation": explain(study, SavedDocuments([layers], [])),
    }
    kinds = (AllocationsDocument, BisectDocument, ImportDocument, TraceDiffDocument, TraceSummary)
    made = {kind.__name__: Filler().make(kind, "") for kind in kinds}
    versions = {"versions": ["1.0", "1.1", "1.2", "1.3"], "previous": "1.1", "version": "1.2"}
    summary = made["TraceSummary"]
    summary.dtypes = dict(zip(summary.weights, ("float32", "float16"), strict=True))
    made["BisectDocument"] = msgspec.structs.replace(made["BisectDocument"], **versions)
    rich = {f"filled {name}": filled(document) for name, document in ({"study": study} | plain).items()}
    return plain | rich | made


def printed() -> str:
    """Return everything that is printed about the documents."""
    text = "".join(f"===== {title}\n{text.rstrip()}\n\n" for title, text in _parts())
    return re.sub(r"\d+\.\d{9,}(e[+-]\d+)?", lambda match: f"{float(match[0]):.9g}", text)  # the last digits vary


def split(text: str) -> dict[str, str]:
    """Return the parts of the file by their titles."""
    return {title: part for title, _, part in (one.partition("\n") for one in text.split("===== ")[1:])}


_MODULES = {"import": "imported", "trace-diff": "trace", "trace-summary": "trace_summary"}
"""Kind of document -> module of `render`, if it has another name."""


def _parts() -> Iterator[tuple[str, str]]:
    for name, document in _documents().items():
        kind = kind_of(document.schema)
        yield from ((f"{name}, {form}", text) for form, text in _texts(document, kind, is_rich=_is_rich(name)))
        if name in ("filled study", "filled sweep", "filled overhead", "TraceDiffDocument"):
            section = StudySection(document) if kind == "study" else document
            yield f"{name}, report", _page_text(render_report([section]))
        if "typical" not in name:
            for figure in (figure for figure, spec in FIGURES.items() if spec.kind == kind):
                with contextlib.suppress(BadInput):
                    yield f"{name}, figure {figure}", _figure_text(draw(figure, document), caption_for(document))


def _is_rich(name: str) -> bool:
    return name.startswith(("filled", *"ABIT")) and name != "filled typical study"


def _texts(document: Any, kind: str, *, is_rich: bool) -> Iterator[tuple[str, str]]:
    if kind == "explanation":
        yield from ((format, explanation.render(document, format)) for format in EXPLANATION_FORMATS[:2])
        return
    options: dict[str, Any] = {"notes": True, "published": kind in ("study", "sweep"), "top": 1}
    formats = (
        ("table", "markdown", "csv", "latex", *(["github"] if kind == "study" else [])) if is_rich else ("table", "csv")
    )
    for format in formats:
        yield format, render(document, format, kind=_MODULES.get(kind, ""), **options)
    if kind == "study":
        yield "parity", render(document, "table", kind="parity")
    if kind == "layers":
        yield "by slowdown", render(document, "table", sort="slowdown")


_LONG = 4
"""Values of a list that are all in the file."""


def _figure_text(figure: Figure, caption: str) -> str:
    parts = [figure.title, figure.note, caption, f"height {figure.height}", *figure.numbers]
    parts += [f"{name}: {_json(value)}" for name, value in figure.layout.items()]
    parts += [
        f"trace {n}, {name}: {_json(value)}" for n, trace in enumerate(figure.traces) for name, value in trace.items()
    ]
    return "\n".join(parts)


def _json(value: Any) -> str:
    """Return a value as JSON; of a long list its ends, its length and a hash."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, list) and len(value) > _LONG:
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{_json(value[:3])} ... {_json(value[-1])}, {len(value)} values, {digest}"
    return text


class _Page(HTMLParser):
    """The texts of a page, one a line, outside of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style")
        shown = [f"{name}={value}" for name, value in attrs if name in ("title", "aria-label", "href")]
        self.lines += [f"<{tag} {' '.join(shown)}>"] if shown else []

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if text and not self._hidden:
            self.lines.append(text)


def _page_text(page: str) -> str:
    parser = _Page()
    parser.feed(page)
    return "\n".join(parser.lines)
