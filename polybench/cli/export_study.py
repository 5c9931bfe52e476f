"""`polybench export ID`: the programs that the engines of a saved study ran, from its log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polybench.cli.output import check_writable, echo, write
from polybench.errors import BadInput
from polybench.schema.documents import start_of_id

if TYPE_CHECKING:
    from polybench.schema.result import Result


def names_study(name: str) -> bool:
    """Return True for the name of a saved document, False for that of a network, which begins with no digit."""
    from polybench.log import SUFFIX
    from polybench.planning.study_file import NETWORK_SUFFIX

    if name.endswith(NETWORK_SUFFIX):
        return False
    return name == "last" or name[:1].isdigit() or name.endswith(SUFFIX) or start_of_id(name) != name


def export_study(name: str, results: Path | None, output: Path | None) -> None:
    """Print the program of each configuration, or write them into a folder; one alone also into a file.

    A configuration without a program is a comment with the reason.
    """
    from polybench.networks.source_text import comment
    from polybench.scripts.script_folder import file_name
    from polybench.storage.store import Store, results_folder

    study = Store(results_folder(results)).load(name)
    found = {one.configuration: one for one in study.results if "#" not in one.configuration}
    for result in found.values():
        if result.program is None:
            echo(f"{comment(f'{result.configuration}: {_reason(result)}')}\n")
        elif output is None:
            echo(f"{comment(f'{result.configuration}, SHA-256 {result.program.sha256}')}\n{result.program.text}")
    programs = {file_name(one.configuration): one.program.text for one in found.values() if one.program is not None}
    if output is not None and programs:
        _write(programs, output)


def _reason(result: Result) -> str:
    if result.is_measured:
        return f"the engine {result.engine} does not run a program of its own: see polybench export --train"
    return f"not measured: {result.reason}"


def _write(programs: dict[str, str], output: Path) -> None:
    if output.suffix in (".py", ".jl"):
        if len(programs) > 1:
            raise BadInput(f"--output {output}: {len(programs)} programs: name a folder")
        files = dict.fromkeys([output], next(iter(programs.values())))
    else:
        files = {output / file: text for file, text in programs.items()}
        output.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        check_writable(path)
        write(text, path)
    echo(f"wrote {', '.join(map(str, files))}", err=True)
