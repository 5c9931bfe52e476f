"""`polybench run`: a study file, or a saved study once more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from polybench.commands import options as o
from polybench.commands.execute import Presentation, execute, print_plan

if TYPE_CHECKING:
    from polybench.planning.study_file import StudyFile


def run(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY.toml|ID",
            help="A study file, or a saved study to repeat: its ID, a unique prefix of it, or `last`.",
        ),
    ],
    data: Annotated[
        str | None, typer.Option("--data", help="Instead of the study's.", rich_help_panel="What is measured")
    ] = None,
    quick: o.Quick = False,
    dry_run: o.DryRun = False,
    strict: o.Strict = False,
    columns: o.Columns = None,
    published: o.Published = False,
    format: o.Format = "table",
    output: o.Output = None,
    results: o.Results = None,
    save: o.Save = True,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Measure what a study file says, or a saved study again.

    Example: polybench run examples/flux_tutorial.toml --quick --published
    """
    chosen, background = _find(study, quick, results)
    if data is not None:
        chosen = msgspec.structs.replace(chosen, data=data)
    if dry_run:
        print_plan(chosen)
        return
    how = Presentation(format, columns, output, results, save, quiet, verbose, published)
    execute(chosen, how, background=background, strict=strict)


def _find(name: str, quick: bool, results: Path | None) -> StudyFile:
    """A file has a folder or `.toml` in its name; all else is an ID.

    Raises:
        BadInput: it is not there, or not valid.
    """
    from polybench.core.document.circumstances import Background
    from polybench.planning.study_file import StudyFile, parse, read
    from polybench.report.saved_studies import Store, results_folder

    path = Path(name)
    if path.suffix == ".toml" or (path.suffix != ".json" and ("/" in name or path.is_file())):
        return read(path, quick=quick)
    saved = Store(results_folder(results)).load(name)
    study = parse(saved.study, f"the study of {saved.id}")
    return StudyFile(study.quick() if quick else study, Background(saved.title, saved.published))
