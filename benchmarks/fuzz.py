"""Coverage-guided fuzzing of what reads the input of others; the targets are in `_fuzzed.py`.

Each target runs in a process of its own for so many seconds, of which none may take more than 2 GiB, or
more than 20 s for an input. A finding is an exception that the target does not expect, a hang, or memory
without bound;
libFuzzer writes the input into the folder `--findings`. Needs `pip install atheris`.

    python benchmarks/fuzz.py [--seconds 600] [--targets document,study] [--findings FOLDER]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "study.json"
LIMITS = ("-rss_limit_mb=2048", "-timeout=20", "-max_len=65536", "-print_final_stats=1", "-verbosity=0")


def fuzz_one(name: str, arguments: list[str]) -> None:
    """In this process, until the time is over: libFuzzer then ends it."""
    import atheris

    with atheris.instrument_imports(include=["polybench"]):
        import _fuzzed

    atheris.Setup([name, *arguments], _fuzzed.TARGETS[name])
    atheris.Fuzz()


def fuzz(name: str, seconds: int, findings: Path) -> bool:
    """In a process of its own; prints how many inputs it tried. Whether it ended without a finding."""
    import _fuzzed

    with tempfile.TemporaryDirectory(prefix="polybench-corpus-") as corpus:
        for number, seed in enumerate(_fuzzed.seeds(GOLDEN).get(name, [b""])):
            (Path(corpus) / str(number)).write_bytes(seed)
        command = [sys.executable, __file__, "--one", name, corpus, *LIMITS]
        command += [f"-max_total_time={seconds}", f"-artifact_prefix={findings}/{name}-"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    tried = re.findall(r"number_of_executed_units:\s*(\d+)|Done (\d+) runs", done.stderr)
    count = next((int(a or b) for a, b in tried), 0)
    found = "FOUND SOMETHING" if done.returncode else "nothing found"
    print(f"{name}: {count:,} inputs in {seconds} s, {found}", flush=True)
    if done.returncode:
        print(done.stderr[-3000:])
    return done.returncode == 0


def main() -> None:
    """From the command line; ends with 1 if anything was found."""
    if sys.argv[1:2] == ["--one"]:
        fuzz_one(sys.argv[2], sys.argv[3:])
    import _fuzzed

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    parser.add_argument("--targets", default=",".join(_fuzzed.TARGETS))
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    given = parser.parse_args()
    given.findings.mkdir(exist_ok=True)
    sound = [fuzz(name, given.seconds, given.findings) for name in given.targets.split(",")]
    sys.exit(not all(sound))


if __name__ == "__main__":
    main()
