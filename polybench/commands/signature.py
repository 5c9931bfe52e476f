"""A command is a function of records; what typer sees of it are rows of the table of options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

from polybench.commands.changes import Changes, make_study
from polybench.commands.filters import make_filters
from polybench.commands.options import OPTIONS, Option
from polybench.commands.presentation import Presentation
from polybench.core.spec import Study
from polybench.report.listed import Filters

Command = Callable[..., None]

_STUDY = Study.__struct_fields__
_RECORDS: dict[Any, tuple[tuple[str, ...], Callable[..., Any]]] = {
    Study: (_STUDY, make_study),
    Changes: (_STUDY, Changes),
    Presentation: (Presentation._fields, Presentation),
}
"""Type of a parameter -> the fields that it takes, and what makes it of those that were given."""

_OWN_OPTIONS: dict[Any, Callable[..., Any]] = {Filters: make_filters}
"""Type of a parameter -> what makes it, whose parameters are options that are in no table."""


def takes(*names: str) -> Callable[[Command], Command]:
    """Give a function these options, by their names in OPTIONS, beside its own.

    The value of each goes to the parameter of its name, or else into the parameter that is a record with
    such a field: a Study or Presentation; or Changes, whose options have no default. A parameter that is
    Filters brings its options along.
    """

    def decorate(function: Command) -> Command:
        wanted = inspect.signature(function, eval_str=True).parameters
        records = {
            name: _RECORDS[one.annotation] for name, one in wanted.items() if one.annotation in _RECORDS
        }
        makers = {
            name: _OWN_OPTIONS[one.annotation]
            for name, one in wanted.items()
            if one.annotation in _OWN_OPTIONS
        }
        brought = {name: inspect.signature(make, eval_str=True).parameters for name, make in makers.items()}
        changes = any(one.annotation is Changes for one in wanted.values())
        rows = [OPTIONS[name] for name in sorted(names, key=list(OPTIONS).index)]

        @functools.wraps(function)
        def command(**values: Any) -> None:
            texts = [(row, values.pop(row.field)) for row in rows]
            given = {row.field: row.read(text) for row, text in texts if text not in (None, [])}
            values |= {name: given.pop(name) for name in wanted if name in given}
            values |= {
                name: make(**{option: values.pop(option) for option in brought[name]})
                for name, make in makers.items()
            }
            for name, (fields, make) in records.items():
                values[name] = make(**{field: given.pop(field) for field in fields if field in given})
            function(**values, **given)

        own = [one for parameters in brought.values() for one in parameters.values()]
        own += [one for name, one in wanted.items() if name not in {*records, *makers, *names}]
        parameters = [one.replace(kind=one.KEYWORD_ONLY) for one in own]
        parameters += [_parameter(row, unset=changes and row.field in _STUDY) for row in rows]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        return command

    return decorate


def _parameter(row: Option, *, unset: bool) -> inspect.Parameter:
    row = row.without_default() if unset else row
    return inspect.Parameter(
        row.field,
        inspect.Parameter.KEYWORD_ONLY,
        default=row.default,
        annotation=Annotated[row.kind, row.info],
    )
