"""`--on slurm`: submitit's real jobs, with simulated commands of SLURM, and with the real ones if there are any.

The nodes of a real cluster must share `--basetemp`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock, patch

import msgspec
import psutil
import pytest

from polybench.cluster import slurm
from polybench.cluster.messages import (
    LAST_MESSAGES,
    Finished,
    Lines,
    Message,
    Moved,
    NodeLost,
    StageChanged,
    Started,
    Task,
    WarningRaised,
    append_messages,
    current_fingerprint,
    read_messages,
)
from polybench.cluster.slurm import NodeJob, SlurmExecutor
from polybench.errors import BadInput
from polybench.log import AnyEvent, ProcessEnded, Warned
from polybench.planning.study_file import read
from polybench.results.document import derive
from polybench.runner.prepare import new_header
from polybench.schema.options import MachineGroup
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests.cluster import fake_slurm
from tests.cluster.cluster_runs import study

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the simulated commands."""
    for name in [name for name in os.environ if name.startswith("SBATCH_")]:
        monkeypatch.delenv(name)
    (folder := tmp_path / "slurm").mkdir()
    fake_slurm.install(folder)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "_QUERY_SECONDS", 0.2)
    return folder


@pytest.fixture(params=["simulated", "real"])
def cluster(request: pytest.FixtureRequest) -> None:
    """Simulated commands, or those of a cluster."""
    if request.param == "simulated":
        request.getfixturevalue("commands")
    elif shutil.which("sbatch") is None or "is UP" not in subprocess.getoutput("scontrol ping"):
        pytest.skip("no SLURM on this machine")


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[SlurmExecutor]:
    executor = SlurmExecutor(f"slurm:{tmp_path / 'shared'}")
    yield executor
    with patch.object(slurm, "_CLEANUP_SECONDS", 0.0):  # held jobs do not end
        executor.close()


def task(folder: Path, processes: int = 2, **fields: object) -> Task:
    spec = study(folder, processes=processes, rounds_per_process=2, budget=3.0)
    header = msgspec.structs.replace(new_header(), id="20260101-000000-aaaa")
    task = Task(header=header, study=spec, fingerprint=current_fingerprint())
    return msgspec.structs.replace(task, **fields)


def messages_until(executor: SlurmExecutor, condition: Callable[[Message], bool], seconds: float = 60) -> list[Message]:
    """Collect messages until one fulfils the condition."""
    found: list[Message] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found += [event.message for event in executor.events(1.0)]
        if any(condition(message) for message in found):
            return found
    raise AssertionError(f"not within {seconds} s: {found}")


def is_last(message: Message) -> bool:
    return isinstance(message, LAST_MESSAGES)


def has_process_run(message: Message) -> bool:
    return isinstance(message, Lines) and any(isinstance(event, ProcessEnded) for event in message.events)


def is_stage(message: Message) -> bool:
    return isinstance(message, StageChanged)


def log_of(messages: list[Message]) -> list[AnyEvent]:
    log: list[AnyEvent] = []
    for message in messages:
        if isinstance(message, Lines):
            assert message.first == len(log) + 1
            log += message.events
    return log


def document_of(messages: list[Message]) -> StudyDocument:
    return derive(log_of(messages))


def lines(first: int) -> Lines:
    return Lines(first, [Warned(text=f"line {first}")])


def write_messages(folder: Path, *messages: Message) -> Path:
    append_messages(folder / "messages", *messages)
    return folder


def test_a_folder_that_would_add_lines_to_a_job_script_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = "/tmp/x\n#SBATCH --account=other\ntouch /tmp/attacked"
    with pytest.raises(BadInput, match="without line breaks"):
        SlurmExecutor(f"slurm:{folder}")
    monkeypatch.setenv("POLYBENCH_RESULTS", folder)
    with pytest.raises(BadInput, match="without line breaks"):
        SlurmExecutor("slurm")


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [("1:00:00", 60), ("30:00", 30), ("2-12:00:00", 3600), ("infinite", float("inf")), ("n/a", float("inf"))],
)
def test_time_limits_with_days_and_hours_are_parsed(limit: str, minutes: float) -> None:
    assert slurm.parse_minutes(limit) == minutes


@pytest.mark.usefixtures("cluster")
def test_rejected_job_is_reported_with_the_reason(executor: SlurmExecutor) -> None:
    with pytest.raises(BadInput, match=r"machine x: SLURM rejects the job: .*partition.*; partitions are: \w+"):
        executor.check([MachineGroup(label="x", partition="nowhere")])
    with pytest.raises(BadInput, match=r"SLURM rejects the job: .*Invalid feature specification"):
        executor.check([MachineGroup(constraint="no-node-has-this")])


@pytest.mark.parametrize(
    ("command", "program", "reason"),
    [
        ("sinfo", "exec yes", "SLURM does not respond: it printed more than 1 MiB"),
        ("sinfo", "sleep 600 & exec sleep 600", "SLURM does not respond: no answer within 2 s"),
        ("sbatch", "exec sleep 600", "SLURM rejects the job"),
    ],
)
def test_commands_of_slurm_are_bounded(
    command: str, program: str, reason: str, executor: SlurmExecutor, commands: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(slurm, "_COMMAND_SECONDS", 2.0 if "sleep" in program else 60.0)
    monkeypatch.setattr(slurm, "_SUBMISSION_SECONDS", 0.5)
    (commands / command).write_text(f"#!/bin/sh\n{program}\n")
    group = MachineGroup()
    with pytest.raises(BadInput, match=reason):
        executor.check([group]) if command == "sinfo" else executor.start(group, task(tmp_path))


@pytest.mark.usefixtures("commands")
def test_time_limit_that_the_partition_does_not_allow_is_rejected(executor: SlurmExecutor) -> None:
    with pytest.raises(BadInput, match="46 minutes exceed the limit of SLURM's partition; use minutes = 45 or less"):
        executor.check([MachineGroup(minutes=46)])
    assert executor.check([MachineGroup(partition="main,long", minutes=46)]) == []


@pytest.mark.usefixtures("cluster")
def test_study_runs_on_a_node(executor: SlurmExecutor, tmp_path: Path) -> None:
    assert executor.check([MachineGroup()]) == []
    executor.start(MachineGroup(), task(tmp_path))
    messages = messages_until(executor, is_last, seconds=120)
    assert isinstance(messages[-1], Finished), messages
    assert any(isinstance(one, Started) for one in messages)
    assert [result.status for result in document_of(messages).results] == ["ok"]
    executor.close()
    assert not (tmp_path / "shared").exists()


def test_missing_sbatch_and_a_folder_that_is_not_writable_are_reported_with_a_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, commands: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"cannot write to .*file/shared: Not a directory"):
        SlurmExecutor(f"slurm:{tmp_path / 'file' / 'shared'}").check([MachineGroup()])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="sbatch not found on this machine"):
        SlurmExecutor(f"slurm:{tmp_path}").check([MachineGroup()])


@pytest.mark.usefixtures("commands")
def test_group_gets_a_whole_node_with_its_requested_resources(executor: SlurmExecutor) -> None:
    executor.check([])
    plain = executor._options(MachineGroup())
    assert {"--job-name=polybench-local", "--exclusive", "--mem=0", "--nodes=1", "--time=45", "--requeue"} <= {*plain}
    assert not any(option.startswith(("--partition", "--gres", "--constraint", "--nodelist")) for option in plain)
    group = MachineGroup(label="v100", partition="long", constraint="ib", accelerator="v100", minutes=7)
    requested = {"--partition=long", "--constraint=ib", "--gres=gpu:v100:1", "--time=7", "--nodelist=n1"}
    assert requested <= {*executor._options(group, "n1.cluster.example")}
    assert "--time=120" in executor._options(MachineGroup(partition="main,long"))


def test_options_of_a_job_precede_the_users_variables(executor: SlurmExecutor, commands: Path, tmp_path: Path) -> None:
    executor.start(MachineGroup(partition="long", minutes=7), task(tmp_path))
    *options, script = (commands / "job-1" / "options").read_text().split("\n")
    assert {"--partition=long", "--time=7"} <= {*options}
    assert "polybench" in options[2]
    assert script.endswith(".sh")


@pytest.mark.usefixtures("commands")
def test_one_node_of_each_partition_that_is_up_is_diagnosed(executor: SlurmExecutor) -> None:
    groups = [one.group for one in executor.nodes()]
    assert [(one.label, one.partition, one.minutes) for one in groups] == [("main", "main", 10), ("long", "long", 10)]


def test_study_resumes_if_its_job_restarts(executor: SlurmExecutor, commands: Path, tmp_path: Path) -> None:
    executor.start(MachineGroup(), task(tmp_path, processes=50))
    before = messages_until(executor, has_process_run)
    os.kill(int((commands / "job-1" / "pid").read_text()), signal.SIGUSR2)  # sent before SLURM's time limit
    restarted = messages_until(executor, lambda one: isinstance(one, Started))
    restarted += messages_until(executor, has_process_run)
    executor.stop()
    after = messages_until(executor, is_last)
    assert isinstance(after[-1], Finished), after
    starts = [one.hostname for one in [*before, *restarted, *after] if isinstance(one, Started)]
    assert starts == [socket.gethostname()] * 2
    first, document = document_of(before), document_of([*before, *restarted, *after])
    assert document.finished
    (resumed,) = document.resumed
    assert resumed.processes >= len(first.results[0].nested_step_times) > 0
    assert any("resumed after" in warning for warning in document.warnings)
    executor.close()
    assert not (tmp_path / "shared").exists()


@pytest.mark.usefixtures("commands")
def test_stop_ends_a_study_like_ctrl_c(executor: SlurmExecutor, tmp_path: Path) -> None:
    executor.start(MachineGroup(), task(tmp_path, processes=50))
    messages = messages_until(executor, has_process_run)
    executor.stop()
    messages += messages_until(executor, is_last)
    assert isinstance(messages[-1], Finished), messages
    assert any(result.status == "interrupted" for result in document_of(messages).results)


@pytest.mark.usefixtures("commands")
def test_cancelled_job_is_lost(executor: SlurmExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_LATE_SECONDS", 1.0)
    executor.start(MachineGroup(), task(tmp_path, processes=50))
    messages_until(executor, lambda one: isinstance(one, Started))
    subprocess.run(["scancel", "1"], check=True)
    last = messages_until(executor, is_last)[-1]
    assert isinstance(last, NodeLost)
    assert last.reason.startswith("job 1 ended as CANCELLED; its log: ")
    assert not last.can_retry


def test_killed_node_program_is_named(executor: SlurmExecutor, commands: Path, tmp_path: Path) -> None:
    executor.start(MachineGroup(), task(tmp_path, processes=50))
    messages_until(executor, lambda one: isinstance(one, Started))
    (program,) = psutil.Process(int((commands / "job-1" / "pid").read_text())).children()
    program.kill()
    last = messages_until(executor, is_last)[-1]
    assert last == NodeLost("the node program was killed by SIGKILL")
    assert (tmp_path / "shared" / task(tmp_path).header.id / "log").exists()


def test_reason_of_a_pending_job_is_reported(executor: SlurmExecutor, commands: Path, tmp_path: Path) -> None:
    (commands / "hold").write_text("Resources")
    executor.start(MachineGroup(), task(tmp_path))
    stage = messages_until(executor, is_stage)[-1]
    assert stage == StageChanged("job 1 is pending in SLURM's queue: Resources")
    executor.stop()
    last = messages_until(executor, is_last)[-1]
    assert last == NodeLost("job 1 was cancelled before it started", can_retry=False)


def test_requeued_job_waits_for_the_host_of_its_log(executor: SlurmExecutor, commands: Path, tmp_path: Path) -> None:
    (commands / "hold").write_text("Priority")
    executor.start(MachineGroup(), task(tmp_path), preferred_host="n1")
    assert "nodelist" not in (commands / "job-1" / "options").read_text()  # without a log any host is suitable
    messages_until(executor, is_stage)
    job = write_messages(tmp_path / "shared" / task(tmp_path).header.id, Started(hostname="n1.local"), lines(1))
    fake_slurm.set_state(commands / "job-1", "RUNNING|None")
    messages_until(executor, lambda one: isinstance(one, Lines))
    while executor._jobs["local"].state != "RUNNING":
        executor.events(0.1)
    fake_slurm.set_state(commands / "job-1", "PENDING|BeginTime")
    messages_until(executor, is_stage)
    fake_slurm.set_state(commands / "job-1", "PENDING|ReqNodeNotAvail, UnavailableNodes:n1")
    messages_until(executor, lambda one: isinstance(one, WarningRaised))
    updates = (commands / "updates").read_text().splitlines()
    assert updates == ["JobId=1 ReqNodeList=n1", "JobId=1 ReqNodeList="]
    assert job.exists()


@pytest.mark.parametrize("is_finished", [True, False])
def test_job_of_a_killed_driver_is_followed(
    is_finished: bool, executor: SlurmExecutor, commands: Path, tmp_path: Path
) -> None:
    (commands / "hold").write_text("Priority")
    SlurmExecutor(f"slurm:{tmp_path / 'shared'}").start(MachineGroup(), task(tmp_path))
    messages: list[Message] = [Started(hostname="n1"), lines(1)]
    messages += [lines(2), Finished()] if is_finished else []
    write_messages(tmp_path / "shared" / task(tmp_path).header.id, *messages)
    executor.start(MachineGroup(), task(tmp_path, log=lines(1).events), preferred_host="n1")
    found = [event.message for event in executor.events(0)]
    assert [one for one in found if not isinstance(one, StageChanged)] == messages
    assert not (commands / "job-2").exists()


def test_job_of_an_interrupted_driver_is_not_followed(
    executor: SlurmExecutor, commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "_CLEANUP_SECONDS", 0.0)
    (commands / "hold").write_text("Priority")
    first = SlurmExecutor(f"slurm:{tmp_path / 'shared'}")
    first.start(MachineGroup(), task(tmp_path))
    write_messages(tmp_path / "shared" / task(tmp_path).header.id, Started(hostname="n1"), lines(1))
    first.close()
    executor.start(MachineGroup(), task(tmp_path, log=lines(1).events), preferred_host="n1")
    assert "--nodelist=n1" in (commands / "job-2" / "options").read_text()
    assert {type(one) for one in messages_until(executor, is_stage)} == {StageChanged}


@pytest.fixture
def job_signals() -> Iterator[None]:
    """Restore the handlers of signals that a job replaces."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("job_signals")
def test_job_restarted_on_its_host_resumes_the_log_of_its_task_and_the_lines_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Mock(receive=lambda: [Finished()])
    monkeypatch.setattr(slurm, "NodeProcess", node_process := Mock(return_value=process))
    write_messages(tmp_path, Started(hostname=socket.gethostname()), lines(2), lines(3), lines(3), lines(4))
    NodeJob(tmp_path / "messages", task(tmp_path, log=lines(1).events))()
    (started,) = [call.args[0] for call in node_process.call_args_list]
    assert started.log == [event for number in (1, 2, 3, 4) for event in lines(number).events]
    assert process.close.called


@pytest.mark.usefixtures("job_signals")
def test_job_restarted_on_another_host_measures_everything(tmp_path: Path) -> None:
    job = NodeJob(tmp_path / "messages", task(tmp_path, processes=1))
    write_messages(tmp_path, Started(hostname="another"), lines(1))
    job()
    messages = read_messages(tmp_path / "messages")[0]
    assert isinstance(messages[-1], Finished), messages[-1]
    (moved,) = [number for number, one in enumerate(messages) if isinstance(one, Moved)]
    reason = f"started on another, but SLURM moved the job: everything is measured again on {socket.gethostname()}"
    assert messages[moved] == Moved(reason)
    assert document_of(messages[moved:]).finished


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.sbatch")), ids=lambda path: path.name)
def test_example_script_has_valid_shell_syntax(script: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    assert subprocess.run([bash, "-n", str(script)], capture_output=True, check=False).stderr == b""


def test_example_study_has_two_classes_of_nodes() -> None:
    machines = read(EXAMPLES / "two_machines.toml").machines
    assert [machine.label for machine in machines] == ["small", "large"]
    assert all(machine.constraint for machine in machines)


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_restarted_example_job_resumes_if_there_is_a_checkpoint(has_checkpoint: bool, tmp_path: Path) -> None:
    program = tmp_path / "polybench"
    program.write_text(
        f'#!/bin/bash\n[[ "$*" == *--dry-run* ]] && exit {0 if has_checkpoint else 2}\necho "arguments: $*"\n'
    )
    program.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_RESTART_COUNT": "1"}
    command = ["bash", str(EXAMPLES / "one_node.sbatch"), "study.toml"]
    output = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout
    assert output == f"arguments: run study.toml {'--resume ' if has_checkpoint else ''}--verbose\n"


@pytest.mark.parametrize("cluster", ["real"], indirect=True)
@pytest.mark.usefixtures("cluster")
def test_example_job_runs_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    file, log, results = (tmp_path / name for name in ("study.toml", "log", "results"))
    file.write_text(f'engines = ["fake"]\ndevices = ["cpu"]\ndata = "{study(tmp_path).data}"\nparity = false\n')
    options = ["--quick", "--batch-size", "16", "--rounds-per-process", "1", "--steps-per-round", "3"]
    command = ["sbatch", "--parsable", "--wait", f"--output={log}", str(EXAMPLES / "one_node.sbatch"), str(file)]
    subprocess.run([*command, *options, "--results", str(results)], check=True)
    (saved,) = Store(results).studies()
    assert saved.finished
    assert "fake/cpu" in log.read_text()


@pytest.mark.parametrize(("state", "can_retry"), [("NODE_FAIL", True), ("forgotten", True), ("FAILED", False)])
def test_a_job_that_its_node_lost_is_started_again(
    state: str, can_retry: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "_LATE_SECONDS", 0.0)
    (tmp_path / "job").write_text("17")
    job = slurm._Job(tmp_path, "")
    job.update(state, "")
    (lost,) = job.poll()
    assert isinstance(lost, NodeLost)
    assert lost.can_retry is can_retry
