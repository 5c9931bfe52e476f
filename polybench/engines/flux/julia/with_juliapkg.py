"""Where nobody names a Julia: juliapkg finds or downloads one, and has its project.

juliapkg writes that project anew whenever it resolves, from what packages declare and from its own list. What
setup adds (PolyBench from its folder, CUDA, what variants need) goes into that list: added with Pkg, it would
vanish then.
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

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.bounds import ADDED, bounds, uuids
from polybench.engines.flux.julia.finding import Julia, check, find
from polybench.engines.flux.julia.installing import OTHER_FOLDER, Say, has_to_change, require_network
from polybench.engines.flux.julia.package import NAME, package_folder
from polybench.engines.flux.julia.remembered import forget
from polybench.engines.flux.julia.starting import first_line

_OFFLINE = "PYTHON_JULIAPKG_OFFLINE"
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


def has_to_resolve(julia: Julia, say: Say, more: Sequence[str] = ()) -> bool:
    """Whether to set up what juliapkg found anew: it does not work, or its project lacks something.

    Raises:
        Unavailable: as `has_to_change`.
    """
    try:
        check(julia)
    except Unavailable:
        return True
    return has_to_change(julia, say, more=more)


def set_up(say: Say, *, more: Sequence[str] = (), offline: bool = False) -> Julia:
    """Find or install Julia, and install the packages, also where juliapkg has resolved its project already.

    Raises:
        Unavailable: it cannot be done, and what to do.
    """
    import juliapkg

    if offline or os.environ.get(_OFFLINE) == "yes":
        raise Unavailable(
            "juliapkg installs nothing without a network", f"name an installed Julia: {OTHER_FOLDER}"
        )
    require_network()
    say("juliapkg looks for juliaup or julia, downloads Julia if there is none (about 200 MB),")
    say("then Flux and what it needs (about 100 packages, 100 MB), and compiles them: minutes the first time")
    forget()
    try:
        # What it prints is no result.
        with contextlib.redirect_stdout(sys.stderr):
            juliapkg.add(NAME, uuids()[NAME], dev=True, path=str(package_folder()))
            for name in more:
                juliapkg.add(name, uuids()[name], version=bounds()[name])
            # It looks for changes in what is listed, and in neither its project nor PolyBench's Project.toml.
            juliapkg.resolve(force=True)
    except Exception as error:  # juliapkg raises plain Exceptions, and what its downloads raise
        raise _why(error) from error
    return find()


def _why(error: Exception) -> Unavailable:
    """What was in juliapkg's way, and what to do."""
    if isinstance(error, OSError) and error.errno in _NOT_WRITABLE:
        return Unavailable(f"{error.filename} cannot be written ({error.strerror})", OTHER_FOLDER)
    if isinstance(error, subprocess.CalledProcessError):  # its own words have the whole script in them
        said = f"Julia ended with code {error.returncode}"
    else:
        said = first_line(error)
    remedy = f"read what it said above; or name an installed Julia: {OTHER_FOLDER}"
    return Unavailable(f"juliapkg could not install Julia or its packages: {said}", remedy)


def remove() -> Path | None:
    """Take juliapkg's project, with what it installed for it, away; its path, or None if there was none.

    A project that is shared (`PYTHON_JULIAPKG_PROJECT`) loses only what setup added.
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
            juliapkg.rm([name for name in (NAME, *ADDED) if name in _own_list(STATE["deps"])])
        return None
    shutil.rmtree(project)
    return project


def _own_list(file: str) -> dict[str, object]:
    import json

    found: dict[str, object] = (
        json.loads(Path(file).read_text("utf-8")).get("packages", {}) if Path(file).is_file() else {}
    )
    return found
