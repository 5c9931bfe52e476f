"""The name of the distribution on the package index, and the commands that install it.

The index has another project named `polybench` (polynomial arithmetic), so ours is `polybench-dl`. The import
name and the command are `polybench`.
"""

from __future__ import annotations

import sys
from pathlib import Path

NAME = "polybench-dl"


def install_command(*extras: str, version: str | None = None) -> str:
    """Return the command that installs polybench: with these extras, or exactly this version."""
    if extras:
        return f"pip install '{NAME}[{','.join(extras)}]'"
    return f"pip install {NAME}=={version}" if version else f"pip install --upgrade {NAME}"


def import_name_conflict() -> str | None:
    """Return a warning if the other project `polybench` is installed, which overwrites our package."""
    if any(other for folder in sys.path if folder for other in Path(folder).glob("polybench-[0-9]*.dist-info")):
        return (
            "another project named polybench is installed and has the same import name:"
            f" pip uninstall polybench; pip install --force-reinstall {NAME}"
        )
    return None
