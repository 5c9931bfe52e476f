"""`polybench merge`: studies of one workload on several machines."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

import polybench
from polybench.analysis.merge import merge
from polybench.schema.parity import ParityCheck
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests.commands import printed, printed_json, refused
from tests.factories import WORKLOAD, measured, study, unmeasured
from tests.log_of import save_document


def on(host: str, *results: Any, id: str, **settings: Any) -> StudyDocument:
    document = study(*results)
    document.id, document.host.hostname = id, host
    document.settings = msgspec.structs.replace(document.settings, **settings)
    return document


@pytest.fixture(autouse=True)
def saved(own_folders: Path) -> None:
    wrong = measured("flux/cpu", 0.001, parity=ParityCheck("fail", "loss"))
    for document in (
        on("small", measured("torch/cpu", 0.020), measured("tf/cpu", 0.010), wrong, id="s"),
        on("large", measured("torch/cuda", 0.002), unmeasured("tf/cuda", "unavailable", "no GPU"), id="l", threads=8),
        on("small", measured("torch/cpu", 0.040), id="again", prices={"cpu": 9.0}),
        on("small", measured("torch/cpu", 0.040), id="batch", batch_size=64),
        on("small", measured("torch/cpu", 0.040), id="images", data_sha256="f" * 64),
    ):
        save_document(Store(own_folders / "results"), document)


def rows(*arguments: str) -> dict[str, dict[str, Any]]:
    document = printed_json("merge", *arguments)
    assert document["schema"] == "polybench.merge/2"
    return {f"{row['machine']}:{row['configuration']}": row for row in document["results"]}


PRICES = ("--price", "small:cpu=1", "--price", "large:cuda=5")


def test_every_row_has_a_speedup_and_its_machines_price() -> None:
    found = rows("s", "l", *PRICES)
    assert " ".join(found) == "small:torch/cpu small:tf/cpu small:flux/cpu large:torch/cuda large:tf/cuda"
    cuda = found["large:torch/cuda"]
    assert cuda["speedup"] == pytest.approx(10, rel=0.01)
    assert cuda["speedup_ci95"][0] < 10 < cuda["speedup_ci95"][1]
    assert cuda["dollars_per_epoch"] == pytest.approx(390 * 0.002 / 3600 * 5)
    assert cuda["relative_cost"] == pytest.approx(0.5)
    assert found["small:torch/cpu"]["speedup"] == 1.0
    assert found["small:tf/cpu"]["speedup"] == pytest.approx(2, rel=0.01)
    assert found["small:flux/cpu"]["speedup"] is None
    assert found["large:tf/cuda"]["reason"] == "no GPU"


def test_python_uses_the_same_saved_studies_for_the_spread() -> None:
    found = json.loads(polybench.merge("s", "l").to_json())
    assert found["machines"] == printed_json("merge", "s", "l")["machines"]
    assert found["machines"][0]["spreads"]["cpu"]["repetitions"] == 2  # "again" and "images"


def test_a_cell_costs_as_many_gpus_as_its_replicas_use() -> None:
    one, two = (
        measured("torch/cuda", 0.002, workload=msgspec.structs.replace(WORKLOAD, replicas=replicas))
        for replicas in (1, 2)
    )
    two.configuration = "torch/cuda/2x"
    found = merge([on("large", one, two, id="x"), on("other", one, id="y")], {"large:cuda": 5.0}).results
    costs = [row.dollars_per_epoch for row in found]
    assert costs[0] == pytest.approx(390 * 0.002 / 3600 * 5)
    assert [costs[1], found[1].relative_cost] == pytest.approx([2 * costs[0], 2])


def test_any_row_can_be_the_baseline() -> None:
    found = rows("s", "l", *PRICES, "--baseline", "large:torch/cuda")
    assert found["small:torch/cpu"]["speedup"] == pytest.approx(0.1, rel=0.01)
    assert found["small:torch/cpu"]["relative_cost"] == pytest.approx(2)
    assert found["large:torch/cuda"]["relative_cost"] == 1


def test_the_table_groups_rows_by_machine() -> None:
    lines = printed("merge", "s", "l", *PRICES).splitlines()
    assert lines[0] == "lenet on synthetic, batch 128, seed 0; baseline small:torch/cpu"
    assert "small: Some CPU @ 2.00GHz, 2 cores, 2 threads, cpu $1.00/hour; study s" in lines
    groups = [line.split()[0] for line in lines[6:12] if line[0] not in " -"]
    assert groups == ["small", "large"]
    assert lines[7].split() == ["small", "torch/cpu", "20.0", "ms", "6,400", "1", "$0.00217", "1.00"]
    assert "  small:flux/cpu: not ranked: failed the parity check" in lines
    assert "  large:tf/cuda: unavailable: no GPU" in lines
    assert "| small" in printed("merge", "s", "l", "--format", "markdown")
    assert (
        printed("merge", "s", "l", "--format", "csv")
        .splitlines()[4]
        .startswith("large,torch/cuda,torch,,cuda,ok,pass,0.00")
    )
    assert "cost" not in printed("merge", "s", "l")


def test_a_device_with_a_number_has_a_price(own_folders: Path) -> None:
    save_document(Store(own_folders / "results"), on("other", measured("torch/cuda:1", 0.002), id="o"))
    for price in ("other:cuda:1=5", "cuda:1=5"):
        dollars = rows("s", "o", "--price", price)["other:torch/cuda:1"]["dollars_per_epoch"]
        assert dollars == pytest.approx(390 * 0.002 / 3600 * 5)


def test_a_repeated_machine_has_a_number_and_the_prices_of_its_study() -> None:
    found = rows("s", "again", "--price", "small:cpu=1")
    assert found["small#2:torch/cpu"]["speedup"] == pytest.approx(0.5, rel=0.01)
    assert found["small#2:torch/cpu"]["relative_cost"] == pytest.approx(18)


def test_a_price_can_depend_on_the_number_of_threads(own_folders: Path) -> None:
    wide = on("wide", measured("torch/cpu", 0.010), id="w", threads=16, prices={"cpu": 9.0})
    save_document(Store(own_folders / "results"), wide)

    def dollars(*prices: str) -> list[float]:
        found = rows("s", "w", *(word for price in prices for word in ("--price", price)))
        return [found[name]["dollars_per_epoch"] for name in ("small:torch/cpu", "wide:torch/cpu")]

    epochs = 390 * 0.020 / 3600, 390 * 0.010 / 3600
    for prices, hourly in {
        ("cpu-2=1", "cpu-16=0.12"): (1, 0.12),
        ("cpu=1", "cpu-16=0.12"): (1, 0.12),
        ("cpu-2=1",): (1, 9),
        ("cpu-2=1", "wide:cpu=5", "cpu-16=0.12"): (1, 5),
        ("cpu-2=1", "wide:cpu=5", "wide:cpu-16=4"): (1, 4),
    }.items():
        assert dollars(*prices) == pytest.approx([e * p for e, p in zip(epochs, hourly, strict=True)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["s"], "merge requires at least two studies"),
        (["s", "l", "s"], "study s occurs twice"),
        (["s", "batch"], "cannot merge studies of different workloads: batch size is 128 in s, 64 in batch"),
        (["s", "images"], "images is 0000"),
        (["s", "l", "--price", "smal:cpu=1"], "unknown machine 'smal'; did you mean 'small'?"),
        (["s", "l", "--price", "small:cuda=1"], "no configuration ran on cuda of small"),
        (["s", "l", "--price", "cpu-16=1"], "no machine used that many threads; threads by machine: small 2"),
        (["s", "l", "--price", "small:cpu-8=1"], "no machine used that many threads; threads by machine: small 2"),
        (["s", "l", "--price", "large:cpu-8=1"], "no configuration ran on cpu of large"),
        (["s", "l", "--price", "cuda:1=1"], "no configuration ran on cuda:1"),
        (["s", "l", "--baseline", "small:flux/cpu"], "unknown configuration 'small:flux/cpu'"),
        (["s", "l", "--price", "cpu=nan"], "expected DEVICE=DOLLARS with a finite number above 0"),
        (["s", "l", "--price", "cpu=inf"], "expected DEVICE=DOLLARS with a finite number above 0"),
        (["s", "l", "--format", "svg"], "unknown format 'svg'"),
    ],
)
def test_bad_input_has_a_reason(arguments: list[str], message: str) -> None:
    assert message in refused("merge", *arguments)


def test_a_price_of_a_machine_precedes_that_of_all() -> None:
    found = rows("s", "l", "--price", "cpu=5", "--price", "small:cpu=1", "--price", "cuda=5")
    assert found["small:torch/cpu"]["dollars_per_epoch"] == pytest.approx(390 * 0.020 / 3600 * 1)


def test_saved_studies_show_how_much_those_of_a_machine_differ() -> None:
    small, large = printed_json("merge", "s", "l")["machines"]
    assert small["spreads"]["cpu"]["repetitions"] > 0
    assert large["spreads"]["cuda"]["repetitions"] == 0


def test_costs_contain_the_shifts_of_both_machines() -> None:
    row = rows("s", "l", "--price", "cpu=1", "--price", "cuda=1")["large:torch/cuda"]
    speed, cost = (math.log(high / low) for low, high in (row["speedup_ci95"], row["relative_cost_ci95"]))
    assert cost == pytest.approx(speed)
