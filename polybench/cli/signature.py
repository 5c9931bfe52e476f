"""`with_options`: a command is a function of records; typer sees rows of the table of options instead."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

from polybench.cli.filters import parse_filters
from polybench.cli.options import OPTIONS, Option
from polybench.cli.output_options import OutputOptions
from polybench.cli.overrides import Overrides, make_study
from polybench.schema.options import Study
from polybench.storage.study_summary import Filters

Command = Callable[..., None]

_STUDY = Study.__struct_fields__
_RECORDS: dict[Any, tuple[tuple[str, ...], Callable[..., Any]]] = {
    Study: (_STUDY, make_study),
    Overrides: (_STUDY, Overrides),
    OutputOptions: (OutputOptions._fields, OutputOptions),
}
"""Type of a parameter -> its fields, and the function that builds it from the given ones."""

_OWN_OPTIONS: dict[Any, Callable[..., Any]] = {Filters: parse_filters}
"""Type of a parameter -> the function that builds it, whose parameters are options outside the table."""


def with_options(*names: str) -> Callable[[Command], Command]:
    """Add options of the table to a command.

    The value of each option goes to the parameter of its name, or into the field of its name in a parameter
    that is a Study, OutputOptions or Overrides. Overrides have no defaults. A parameter of type Filters adds
    the options of `parse_filters`. Own options with a help panel follow those of the table.

    Args:
        names: keys of OPTIONS.
    """

    def decorate(function: Command) -> Command:
        declared = inspect.signature(function, eval_str=True).parameters
        records = {
            name: _RECORDS[parameter.annotation]
            for name, parameter in declared.items()
            if parameter.annotation in _RECORDS
        }
        builders = {
            name: _OWN_OPTIONS[parameter.annotation]
            for name, parameter in declared.items()
            if parameter.annotation in _OWN_OPTIONS
        }
        builder_options = {name: inspect.signature(build, eval_str=True).parameters for name, build in builders.items()}
        has_overrides = any(parameter.annotation is Overrides for parameter in declared.values())
        rows = [OPTIONS[name] for name in sorted(names, key=list(OPTIONS).index)]

        @functools.wraps(function)
        def command(**values: Any) -> None:
            parsed = [(row, values.pop(row.field)) for row in rows]
            given = {row.field: row.read(value) for row, value in parsed if value not in (None, [])}
            values |= {name: given.pop(name) for name in declared if name in given}
            values |= {
                name: build(**{option: values.pop(option) for option in builder_options[name]})
                for name, build in builders.items()
            }
            for name, (fields, build) in records.items():
                values[name] = build(**{field: given.pop(field) for field in fields if field in given})
            function(**values, **given)

        own = [option for options in builder_options.values() for option in options.values()]
        own += [parameter for name, parameter in declared.items() if name not in {*records, *builders, *names}]
        parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in own]
        parameters += [_parameter(row, unset=has_overrides and row.field in _STUDY) for row in rows]
        parameters.sort(key=_has_panel_of_its_own)
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    def _has_panel_of_its_own(parameter: inspect.Parameter) -> bool:
        """Return True for an option of the command itself that stands in one of the table's panels."""
        panels = (getattr(info, "rich_help_panel", None) for info in getattr(parameter.annotation, "__metadata__", ()))
        return parameter.name not in names and any(panels)

    return decorate


def _parameter(row: Option, *, unset: bool) -> inspect.Parameter:
    row = row.without_default() if unset else row
    return inspect.Parameter(
        row.field,
        inspect.Parameter.KEYWORD_ONLY,
        default=row.default,
        annotation=Annotated[row.kind, row.info],
    )
