"""`with_options`: a command is a function of records; typer sees rows of the table of options instead."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_type_hints

import msgspec
import typer

from polybench.cli.options import OPTIONS, Option
from polybench.cli.output import OutputOptions
from polybench.errors import BadInput, lookup_or_suggest
from polybench.schema.options import Study, environments_of, reject_unused_environments
from polybench.storage.filter_parsing import filters_from_text
from polybench.storage.study_summary import Filters


def parse_filters(
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            help="Engine: torch selects any variant, torch+compile this one. Wildcards: * and ?.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Network: lenet or catdog-*, for example.")] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="Device of a configuration: cpu or cuda*, for example.")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Host name of the machine.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="First date: 2026-11-01 (UTC).")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Last date, inclusive: 2026-11-30 (UTC).")] = None,
    version: Annotated[
        list[str] | None,
        typer.Option("--version", help="Version of a package: torch=2.13 selects 2.13.0 and 2.13.1. May be repeated."),
    ] = None,
) -> Filters:
    """Parse the filters; raise BadInput for an invalid date or version."""
    given = {"engine": engine, "model": model, "device": device, "host": host, "since": since, "until": until}
    return filters_from_text(given, version or ())


def make_study(**fields: Any) -> Study:
    """Make a study of fields; raise BadInput that names the option for a value outside its range."""
    try:
        study = _with_network(msgspec.convert(fields, Study))
        reject_unused_environments(study)
        return study
    except msgspec.ValidationError as error:
        text = str(error)
        match = re.search(r"\$\.(\w+)", text)
        field = match[1] if match else ""
        words = get_args(get_type_hints(Study).get(field))
        given = fields.get(field)
        if "enum" in text and given not in words:  # the field accepts a few words only
            lookup_or_suggest(str(given), dict.fromkeys(words), field)
        option = f"--{field.replace('_', '-')}" if field else "the study"
        raise BadInput(f"{option}: {text.partition(' - at')[0]}") from error
    except UnicodeEncodeError as error:
        raise BadInput(f"invalid name {error.object!r}: expected UTF-8 text") from error


def _with_network(study: Study) -> Study:
    """Replace a network file's name with the network; does not load NumPy without a network file."""
    if not isinstance(study.model, str) or not study.model.endswith(".toml"):
        return study
    from polybench.planning.study_file import with_network

    return with_network(study)


class Overrides:
    """Fields of a study that were given on the command line."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def apply(self, study: Study) -> Study:
        """Return the study with these fields; raise BadInput if they do not fit together.

        If `engines` are overridden, environments that no engine uses any more are removed.
        """
        fields = msgspec.structs.asdict(study) | self._fields
        if "engines" in self._fields and "env" not in self._fields:
            fields["env"] = environments_of(fields["engines"], study.env)
        return make_study(**fields)


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
