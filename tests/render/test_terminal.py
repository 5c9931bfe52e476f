from __future__ import annotations

from polybench.render import render
from polybench.schema.metrics import Metric
from polybench.schema.result import Result
from tests.factories import study, typical_study, unmeasured


def lines(columns: list[Metric], *results: Result) -> list[str]:
    return render("table", study(*results), columns).splitlines()


def test_complete_table(columns: list[Metric]) -> None:
    text = render("table", typical_study(), columns)
    body = text.split("\n\n", 1)[1]
    assert body.startswith(
        """\
engine                     step    images              speedup     cold      peak  parity
                           time     per s                         start    memory
----------------  -------------  --------  -------------------  -------  --------  ---------
torch/cpu         16.5 ms ±2.5%     7,758     1     (baseline)   2.15 s   412 MiB  identical
tf/cpu            8.55 ms ±2.5%    14,971  1.93 (1.93 to 1.93)   2.15 s   412 MiB  identical
flux/cpu          20.1 ms ±2.5%     6,368  0.82 (0.82 to 0.82)   2.15 s   412 MiB  identical
torch/cuda        unavailable: no CUDA device is visible to PyTorch (hint: install an NVIDIA driver,
                  then run polybench doctor)
tf/cuda           failed: killed by signal 9 (SIGKILL) out of memory? (log: /tmp/polybench/tf.log)

not ranked: failed the parity check
tf+keras_fit/cpu   112 ms ±2.5%     1,143                        2.15 s   412 MiB  DIFFERS
"""
    )
    assert text.endswith("torch is 1.22 (1.22 to 1.22) times as fast as flux on cpu.\n")


def test_paths_are_never_broken(columns: list[Metric]) -> None:
    path = "/" + "long-folder/" * 12 + "torch.log"
    assert any(path in line for line in lines(columns, unmeasured("torch/cpu", "failed", "crashed", log_path=path)))


def test_rows_without_times(columns: list[Metric]) -> None:
    assert lines(columns, unmeasured("tf/cpu", "failed", "crashed"))[-1] == "tf/cpu  failed: crashed"


def test_no_ranked_rows(columns: list[Metric]) -> None:
    failed = typical_study().result("tf+keras_fit/cpu")
    output = lines(columns, failed)
    assert output[output.index("not ranked: failed the parity check") + 1].startswith("tf+keras_fit/cpu")


def test_study_without_results(columns: list[Metric]) -> None:
    assert "nothing measured" in render("table", study(), columns)
