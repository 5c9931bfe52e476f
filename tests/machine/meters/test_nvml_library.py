"""nvidia-ml-py with a C library in place of a driver's: loading, structures, errors, a lost GPU, a hanging driver."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from polybench.machine.meters.gpu import GpuSample
from tests.machine.meters import nvml_library
from tests.machine.meters.test_gpu import PID, READINGS

READ = f"""
import pynvml
from polybench.machine.meters.gpu import Gpu
pynvml.nvmlInit()
for index in range(pynvml.nvmlDeviceGetCount()):
    gpu, failures = Gpu(index), {{}}
    readings = vars(gpu.sample({PID}, ({PID},), failures))
    name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index))
    print((name, readings, failures, gpu.joules({{}}), gpu.used_bytes()))
pynvml.nvmlShutdown()
"""
COMPARE = (
    *("compare", "--engines", "fake", "--devices", "cuda", "--data", "synthetic"),
    *("--quick", "--no-save", "--wait-idle", "0"),
)


def run(environment: dict[str, str], *command: str) -> str:
    """Run Python with these arguments; return its standard output."""
    done = subprocess.run(
        [sys.executable, *command], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def measure(environment: dict[str, str]) -> dict[str, Any]:
    """Return the result of a simulated engine on this driver's first GPU."""
    (result,) = json.loads(run(environment, "-m", "polybench", *COMPARE, "--format", "json"))["results"]
    return dict(result)


@pytest.mark.cuda_level("meters", "computed on a stand-in")
def test_readings_of_each_card_pass_through_the_c_interface(tmp_path: Path) -> None:
    expected = {card: tuple(rest) for card, *rest in READINGS}
    for cards, old_driver in ((("h100",), False), (("laptop", "a100_mig"), False), (("gtx_1080",), True)):
        environment = nvml_library.build(tmp_path / cards[0], *cards, old_driver=old_driver)
        lines = run(environment, "-c", READ).splitlines()
        for card, line in zip(cards, lines, strict=True):
            name, readings, failures, joules, used = ast.literal_eval(line)
            assert name == nvml_library.CARDS[card]["nvmlDeviceGetName"]
            assert (GpuSample(**readings), failures, joules, used) == expected[card]


def test_the_energy_counter_of_each_card_is_listed_or_has_a_reason(tmp_path: Path) -> None:
    environment = nvml_library.build(tmp_path / "driver", "v100", "gtx_1080")
    code = "from polybench.machine.meters.availability import gpus; print([(m.available, m.meter) for m in gpus()])"
    shown = run(environment, "-c", code)
    _, *counters = ast.literal_eval(shown)
    assert counters == [(True, "energy of Tesla V100-SXM2-16GB"), (False, "energy of NVIDIA GeForce GTX 1080")]


def test_a_study_reads_the_driver(tmp_path: Path) -> None:
    result = measure(nvml_library.build(tmp_path / "driver", "h100"))
    used = result["utilization"]
    assert (result["status"], used["gpu_percent"], used["temperature"]) == ("ok", 96.0, 61.0)
    assert used["power"] > 0
    assert used["throttle_reasons"] == ["power cap"]


def test_a_lost_gpu_is_a_warning(tmp_path: Path) -> None:
    result = measure(nvml_library.build(tmp_path / "driver", "h100") | {"NVML_LOST_AFTER": "20"})
    assert result["status"] == "ok"
    assert any("GPU is lost" in warning for warning in result["warnings"])


@pytest.mark.wide  # test_observer.py has the same with a reading in Python that hangs
def test_a_driver_that_hangs_does_not_stop_a_study(tmp_path: Path) -> None:
    result = measure(nvml_library.build(tmp_path / "driver", "h100") | {"NVML_HANG_AFTER": "20"})
    assert result["status"] == "ok"
    assert any("NVML no longer responds" in warning for warning in result["warnings"])
