from __future__ import annotations

import csv
import json

import msgspec
import pytest

from polybench.render import render
from polybench.schema.measurements import AllocationsDocument, AllocationSite, ConfigurationAllocations
from polybench.schema.result import Status
from tests.factories import typical_study

MIB = 1 << 20


def allocations(
    name: str, sites: list[AllocationSite], status: Status = "ok", **changes: str | None
) -> ConfigurationAllocations:
    document = ConfigurationAllocations(
        configuration=f"{name}/cpu", engine=name, variant=None, device="cpu", status=status
    )
    if sites:
        document.source, document.coverage, document.sites = "a profiler", "tensors", sites
        document.bytes_per_step = sum(site.bytes_per_step for site in sites)
        document.count_per_step = sum(site.count_per_step for site in sites)
    return msgspec.structs.replace(document, **changes)


@pytest.fixture
def document() -> AllocationsDocument:
    study = typical_study()
    torch = [AllocationSite("aten::conv2d", 3 * MIB, 8, 2, MIB), AllocationSite("aten::relu", MIB, 2, 0, 0)]
    flux = [AllocationSite("NNlib: conv! (src/conv.jl)", MIB, 4)]
    unavailable = {"reason": "no allocation\nsites", "hint": "use another profiler"}
    return AllocationsDocument(
        created=study.created,
        polybench=study.polybench,
        argv=study.argv,
        study=study.study,
        settings=study.settings,
        host=study.host,
        warnings=["the machine\nis busy"],
        configurations=[
            allocations("torch", torch),
            allocations("flux", flux),
            allocations("tf", [], "unavailable", **unavailable),
        ],
    )


def test_table_lists_top_sites_and_avoidable_allocations(document: AllocationsDocument) -> None:
    text = render(document, top=1)
    assert "torch/cpu: 4.00 MiB in 10.0 allocations; 2.00 of them (1.00 MiB) are avoidable: " in text
    assert "Source: a profiler; coverage: tensors" in text
    assert "aten::conv2d" in text
    assert "75%" in text
    assert "aten::relu" not in text
    assert "and 1 more allocation site (--top)" in text
    assert "flux/cpu: 1.00 MiB in 4.00 allocations. Source" in text  # no source of avoidable ones
    assert "tf/cpu: unavailable: no allocation sites (hint: use another profiler)" in text
    assert text.endswith("  warning: the machine is busy\n")
    assert "more" not in render(document, top=2)


def test_markdown_contains_the_same_rows(document: AllocationsDocument) -> None:
    assert "| aten::relu " in render(document, "markdown")


def test_csv_and_json_contain_all_sites(document: AllocationsDocument) -> None:
    rows = list(csv.DictReader(render(document, "csv", top=1).splitlines()))
    assert [row["location"] for row in rows] == ["aten::conv2d", "aten::relu", "NNlib: conv! (src/conv.jl)", ""]
    assert (rows[0]["bytes_per_step"], rows[2]["avoidable_allocations_per_step"]) == (str(3 * MIB), "")
    assert (rows[3]["status"], rows[3]["reason"]) == ("unavailable", "no allocation sites")
    text = render(document, "json", top=1)
    assert msgspec.json.decode(text, type=AllocationsDocument) == document
    assert len(json.loads(text)["configurations"][0]["sites"]) == 2
