"""Checks the built distributions: `python -m tests.release FOLDER [EXTRAS]` installs each and runs it.

`python -m tests.release version` prints the version of this checkout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def version() -> str:
    """Return the version of this checkout, without importing its dependencies."""
    sys.path.insert(0, str(ROOT / "polybench"))
    from errors import __version__  # type: ignore[import-not-found]

    return str(__version__)


def check(distribution: Path, extras: str) -> None:
    """Install a distribution into a fresh environment, and run it in an empty folder; raise if anything fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        programs = folder / "venv" / "bin"
        required = f"{distribution.absolute()}[{extras}]" if extras else str(distribution.absolute())
        subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", required], check=True)

        def run(*command: str) -> str:
            variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
            variables |= {"XDG_CACHE_HOME": name, "POLYBENCH_RESULTS": f"{name}/results"}
            return subprocess.run(
                [programs / command[0], *command[1:]], check=True, text=True, stdout=subprocess.PIPE, cwd=folder,
                env=variables,
            ).stdout  # fmt: skip

        assert run("polybench", "--version").split() == ["polybench", version()]
        package = Path(run("python", "-c", "import polybench; print(polybench.__path__[0])").strip())
        assert package.is_relative_to(folder), package
        assert (package / "py.typed").is_file()
        assert (package / "engines/flux/julia/PolyBench/Project.toml").is_file()
        engine = "torch" if "torch" in extras.split(",") else "fake"
        options = ("--data", "synthetic", "--quick", "--format", "json")
        (result,) = json.loads(run("polybench", "compare", "--engines", engine, "--devices", "cpu", *options))[
            "results"
        ]
        assert result["status"] == "ok", result
        if "report" in extras.split(","):
            run("polybench", "report", "last", "-o", "report.html")
            run("polybench", "report", "--all", "-o", "pages")
    print(f"{distribution.name}: installed with [{extras}], and ran {engine} outside of the checkout")


def main(first: str, extras: str = "report") -> None:
    if first == "version":
        print(version())
        return
    distributions = [path for path in sorted(Path(first).iterdir()) if path.name.endswith((".whl", ".tar.gz"))]
    assert len(distributions) == 2, distributions
    for distribution in distributions:
        check(distribution, extras)


if __name__ == "__main__":
    main(*sys.argv[1:])
