"""SLURM's commands for one machine: `sbatch` runs submitit's real job scripts as processes.

Started as `fake_slurm.py COMMAND ARGUMENT...` with the folder of its state in FAKE_SLURM. Each job has a folder with
its state and the options of sbatch. If the state has a file `hold`, new jobs stay pending for the reason in it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun")
PARTITIONS = "main*|up|45:00\nlong|up|infinite\nold|down|9:00\n"


def install(folder: Path) -> None:
    """Write the commands into a folder, which is also that of the state."""
    for name in COMMANDS:
        command = folder / name
        command.write_text(f'#!/bin/sh\nFAKE_SLURM="{folder}" exec "{sys.executable}" "{__file__}" {name} "$@"\n')
        command.chmod(0o755)


def sbatch(folder: Path, *arguments: str) -> str:
    """Start a job; reject unknown partitions and every constraint."""
    options = dict(re.findall(r"--([\w-]+)=(\S+)", " ".join(arguments)))
    if not {*options.get("partition", "main").split(",")} <= {"main", "long", "old"}:
        sys.exit("sbatch: error: invalid partition specified: x\nsbatch: error: Invalid partition name specified")
    if "constraint" in options:
        sys.exit("allocation failure: Invalid feature specification")
    if "--test-only" in arguments:
        return ""
    id = str(1 + len(list(folder.glob("job-*"))))
    job = folder / f"job-{id}"
    job.mkdir()
    (job / "options").write_text("\n".join(arguments))
    if (folder / "hold").exists():
        set_state(job, f"PENDING|{(folder / 'hold').read_text()}")
    else:
        set_state(job, "PENDING|None")
        subprocess.Popen(
            [sys.executable, __file__, "run", id, arguments[-1]],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    return f"Submitted batch job {id}\n"


def run(folder: Path, id: str, script: str) -> str:
    """Run a job to its end, again after each requeue."""
    job = folder / f"job-{id}"
    (output,) = re.findall(r"^#SBATCH --output=(.*)$", Path(script).read_text(), re.MULTILINE)
    with Path(output.replace("%j", id)).open("ab") as log:
        while True:
            (job / "requeue").unlink(missing_ok=True)
            process = subprocess.Popen(
                ["bash", script], env=os.environ | {"SLURM_JOB_ID": id}, stdout=log, stderr=log, start_new_session=True
            )
            (job / "pid").write_text(str(process.pid))
            set_state(job, "RUNNING|None")
            code = process.wait()
            if not (job / "requeue").exists():
                break
            set_state(job, "PENDING|BeginTime")
            time.sleep(0.5)
    if not (job / "state").read_text().startswith("CANCELLED"):
        set_state(job, "FAILED|NonZeroExitCode" if code else "COMPLETED|None")
    return ""


def squeue(folder: Path, *arguments: str) -> str:
    """List the states of the requested jobs."""
    (ids,) = re.findall(r"--jobs=(\S*)", " ".join(arguments))
    jobs = [folder / f"job-{id}" for id in ids.split(",")]
    return "".join(f"{job.name[4:]}|{(job / 'state').read_text()}\n" for job in jobs if job.exists())


def scancel(folder: Path, *arguments: str) -> str:
    """Send a signal to the first process of a job, or end the job."""
    job = folder / f"job-{arguments[-1]}"
    is_running = (job / "state").read_text().startswith("RUNNING")
    if "--signal=INT" in arguments:
        os.kill(int((job / "pid").read_text()), signal.SIGINT)
    elif is_running or (job / "state").read_text().startswith("PENDING"):
        set_state(job, "CANCELLED|None")
        if is_running:
            os.killpg(int((job / "pid").read_text()), signal.SIGTERM)
    return ""


def scontrol(folder: Path, action: str, *arguments: str) -> str:
    """Requeue a job, or note a change of it."""
    if action == "requeue":
        (folder / f"job-{arguments[0]}" / "requeue").touch()
    else:
        with (folder / "updates").open("a") as file:
            file.write(" ".join(arguments) + "\n")
    return ""


def sinfo(*_: object) -> str:
    """List the partitions."""
    return PARTITIONS


def set_state(job: Path, text: str) -> None:
    """Replace the state of a job atomically."""
    (job / "new").write_text(text)
    (job / "new").rename(job / "state")


if __name__ == "__main__":
    print(globals()[sys.argv[1]](Path(os.environ["FAKE_SLURM"]), *sys.argv[2:]), end="")
