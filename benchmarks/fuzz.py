"""Coverage-guided fuzzing of all readers of external input; the targets are in `_fuzz_cases.py`.

Each target runs in a process of its own for some seconds. No input may take more than 2 GiB or
60 s. A finding is an unexpected exception, a hang, or unbounded memory;
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

LIMITS = ("-rss_limit_mb=2048", "-timeout=60", "-max_len=65536", "-print_final_stats=1", "-verbosity=0")


def fuzz_one(name: str, arguments: list[str]) -> None:
    """Fuzz in this process until libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=["polybench"]):
        import _fuzz_cases

    for seed in _fuzz_cases.seeds().get(name, [b""]):
        _fuzz_cases.TARGETS[name](seed)  # late imports take longer than an input may
    atheris.Setup([name, *arguments], _fuzz_cases.TARGETS[name])
    atheris.Fuzz()


def fuzz(name: str, seconds: int, findings: Path) -> bool:
    """Fuzz in a process of its own; print the number of inputs; return True without findings."""
    import _fuzz_cases

    with tempfile.TemporaryDirectory(prefix="polybench-corpus-") as corpus:
        for number, seed in enumerate(_fuzz_cases.seeds().get(name, [b""])):
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
    """Parse the command line; end with 1 if there are findings."""
    if sys.argv[1:2] == ["--one"]:
        fuzz_one(sys.argv[2], sys.argv[3:])
    import _fuzz_cases

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    parser.add_argument("--targets", default=",".join(_fuzz_cases.TARGETS))
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    given = parser.parse_args()
    given.findings.mkdir(exist_ok=True)
    sound = [fuzz(name, given.seconds, given.findings) for name in given.targets.split(",")]
    sys.exit(not all(sound))


if __name__ == "__main__":
    main()
