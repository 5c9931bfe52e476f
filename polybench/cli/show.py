"""`polybench show`: prints a saved document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from polybench.cli.completion import saved
from polybench.cli.options import with_options
from polybench.cli.output import (
    DOCUMENT_HELP,
    OutputOptions,
    anonymize_if_requested,
    check_writable,
    parse_columns,
    width,
    write,
)
from polybench.cli.sweep import reject_options
from polybench.errors import BadInput, lookup_or_suggest
from polybench.render import EXPLANATION_FORMATS, check_format, render
from polybench.schema.analyses import ExplanationDocument
from polybench.schema.study import StudyDocument
from polybench.storage.filters import Filters

if TYPE_CHECKING:
    from polybench.schema.documents import AnyDocument
    from polybench.storage.store import Store


@with_options(
    "prices", "baseline", "tolerance", "columns", "published", "format", "output", "results", "anonymous", "quiet"
)
def show(
    study: Annotated[str, typer.Argument(metavar="ID", help=DOCUMENT_HELP, autocompletion=saved())],
    options: OutputOptions,
    prices: Mapping[str, float] | None = None,
    baseline: str | None = None,
    tolerance: float | None = None,
    notes: Annotated[bool, typer.Option("--notes", help="Print all notes of a study.")] = False,
    methods: Annotated[
        bool, typer.Option("--methods", help="Print how a study was measured, as a paragraph for a paper.")
    ] = False,
    salvage: Annotated[
        bool, typer.Option("--salvage", help="Of a damaged log, use the lines before the first damaged one.")
    ] = False,
    title: Annotated[str | None, typer.Option("--title", help="With `last`: newest title like nightly*.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="With `last`: newest tag like ci; repeatable.")
    ] = None,
) -> None:
    """Everything is computed from the saved measurements: with another --baseline, --tolerance or --price, too.

    Example: polybench show last --format markdown
    """
    from polybench.analysis.prices import check_prices
    from polybench.render.methods import methods_text
    from polybench.render.study import fastest_rows
    from polybench.render.table import wrap
    from polybench.storage.store import Store, load_document, results_folder

    store = Store(results_folder(options.results))
    if title is not None or tag:
        study = _newest(study, Filters(title=title, tags=tag or ()), store)
    computed = {"baseline": baseline, "tolerance": tolerance}
    document: AnyDocument
    if baseline is not None or tolerance is not None:
        document = store.load(study, salvage=salvage, prices=prices, repetitions=store.summaries(), **computed)
    else:
        document = load_document(study, store, salvage=salvage, prices=prices, with_repetitions=True)
    check_prices(prices or (), [document])
    if not isinstance(document, StudyDocument):
        reject_options({"--notes": notes, "--methods": methods}, f"{study} is not a study")
        _show_other_document(document, study, options)
        return
    metrics = parse_columns(options.columns)
    check_format(options.format)
    document = anonymize_if_requested(document, options)
    check_writable(options.output)
    line = width(options.output)
    if methods:
        write(f"{wrap(methods_text(document), line)}\n", options.output)
        return
    text = render(
        document,
        options.format,
        width=line,
        columns=metrics,
        published=options.published,
        notes=notes,
        name=study if study == "last" else "ID",
    )
    write(text, options.output, fastest_rows(document))


def _newest(name: str, filters: Filters, store: Store) -> str:
    """Return the ID of the newest matching document, if `name` is `last`, `sweep-last` or `overhead-last`."""
    from polybench.schema.documents import newest_name

    kinds = {newest_name(kind): kind for kind in ("study", "sweep", "overhead")}
    if name not in kinds:
        raise BadInput(f"--title and --tag with {name}: expected one of {', '.join(kinds)}: leave them out for an ID")
    summaries = [one for one in (*store.summaries(), *store.other_summaries()) if one.kind == kinds[name]]
    found = [one.file for one in summaries if filters.matches(one)]
    if not found:
        raise BadInput(
            f"no saved {kinds[name]} has this title and these tags: `polybench list` shows all titles and tags"
        )
    return found[-1]


def _show_other_document(document: AnyDocument, name: str, options: OutputOptions) -> None:
    """Print a document other than a study as its own command prints it."""
    from polybench.render import explanation
    from polybench.schema.documents import DOCUMENT_KINDS, kind_of

    kind = kind_of(document.schema)
    given = {"--columns": options.columns, "--published": options.published and kind != "sweep"}
    reject_options(given, f"{name} is {DOCUMENT_KINDS[kind].description}")
    if kind == "explanation":
        lookup_or_suggest(options.format, dict.fromkeys(EXPLANATION_FORMATS), "format")
    else:
        check_format(options.format)
    document = anonymize_if_requested(document, options)
    check_writable(options.output)
    line = width(options.output)
    if isinstance(document, ExplanationDocument):
        write(explanation.render(document, options.format, line), options.output)
    else:
        write(render(document, options.format, width=line, published=options.published), options.output)
