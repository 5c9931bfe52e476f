"""Sets Julia up through juliapkg, which finds or downloads it and manages a project.

juliapkg rewrites that project whenever it resolves, from the declarations of Python packages and its own list.
setup adds its packages (PolyBench, CUDA, those of variants) to that list, because resolving would remove packages
added with Pkg.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from polybench.engines.flux.julia import saved_config
from polybench.engines.flux.julia.discovery import Julia, check, find
from polybench.engines.flux.julia.installation import OTHER_FOLDER, PrintFunction, needs_changes, require_network
from polybench.engines.flux.julia.package import NAME, package_folder
from polybench.engines.flux.julia.startup import first_error_line
from polybench.engines.flux.julia.version_bounds import OPTIONAL_PACKAGES, bounds, uuids
from polybench.errors import EngineUnavailable

_OFFLINE = "PYTHON_JULIAPKG_OFFLINE"
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


def needs_resolve(julia: Julia, print_line: PrintFunction, more: Sequence[str] = ()) -> bool:
    """True if juliapkg's Julia does not work, or its project must be changed.

    Raises:
        EngineUnavailable: see `needs_changes`.
    """
    try:
        check(julia)
    except EngineUnavailable:
        return True
    return needs_changes(julia, print_line, more=more)


def set_up(print_line: PrintFunction, *, more: Sequence[str] = (), offline: bool = False) -> Julia:
    """Find or install Julia, and install the packages, even if juliapkg has resolved its project.

    Raises:
        EngineUnavailable: the installation failed; with the fix.
    """
    import juliapkg

    if offline or os.environ.get(_OFFLINE) == "yes":
        raise EngineUnavailable("juliapkg cannot install without a network", f"name an installed Julia: {OTHER_FOLDER}")
    require_network()
    print_line("juliapkg looks for juliaup or julia, and downloads Julia if it is not installed (about 200 MB),")
    print_line("then Flux with dependencies (about 100 packages, 100 MB), and compiles them; this takes minutes")
    saved_config.delete()
    try:
        # Its output is not a result.
        with contextlib.redirect_stdout(sys.stderr):
            juliapkg.add(NAME, uuids()[NAME], dev=True, path=str(package_folder()))
            for name in more:
                juliapkg.add(name, uuids()[name], version=bounds()[name])
            # juliapkg detects changes of its list, but not of its project or of PolyBench's Project.toml.
            juliapkg.resolve(force=True)
    except Exception as error:  # juliapkg raises plain Exceptions and errors of its downloads
        raise _explain(error) from error
    return find()


def _explain(error: Exception) -> EngineUnavailable:
    """Convert an error of juliapkg to a reason and a fix."""
    if isinstance(error, OSError) and error.errno in _NOT_WRITABLE:
        return EngineUnavailable(f"{error.filename} is not writable ({error.strerror})", OTHER_FOLDER)
    if isinstance(error, subprocess.CalledProcessError):  # its message contains the whole script
        message = f"Julia ended with code {error.returncode}"
    else:
        message = first_error_line(error)
    hint = f"read its output above, or name an installed Julia: {OTHER_FOLDER}"
    return EngineUnavailable(f"juliapkg could not install Julia or its packages: {message}", hint)


def remove() -> Path | None:
    """Delete juliapkg's project with its packages; return its path, or None if it does not exist.

    A shared project (`PYTHON_JULIAPKG_PROJECT`) only loses the packages that setup added.
    """
    try:
        import juliapkg
        from juliapkg.state import STATE
    except ImportError:
        return None
    project = Path(STATE["project"])
    if not project.is_dir():
        return None
    if STATE["project_is_shared"]:
        with contextlib.redirect_stdout(sys.stderr):
            juliapkg.rm([name for name in (NAME, *OPTIONAL_PACKAGES) if name in _own_list(STATE["deps"])])
        return None
    shutil.rmtree(project)
    return project


def _own_list(file: str) -> dict[str, object]:
    import json

    found: dict[str, object] = (
        json.loads(Path(file).read_text("utf-8")).get("packages", {}) if Path(file).is_file() else {}
    )
    return found
