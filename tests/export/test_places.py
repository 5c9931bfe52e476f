from __future__ import annotations

import csv
import json

import msgspec
import pytest

from polybench.core.document.places import AllocationsDocument, EnginePlaces, Place
from polybench.core.document.result import Status
from polybench.export.places import FORMATS
from tests.factories import typical_study

MIB = 1 << 20


def engine(name: str, places: list[Place], status: Status = "ok", **changes: str | None) -> EnginePlaces:
    made = EnginePlaces(cell=f"{name}/cpu", engine=name, variant=None, device="cpu", status=status)
    if places:
        made.source, made.covers, made.places = "a profiler", "tensors", places
        made.bytes_per_step = sum(place.bytes_per_step for place in places)
        made.calls_per_step = sum(place.calls_per_step for place in places)
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
def document() -> AllocationsDocument:
    told = typical_study()
    torch = [Place("aten::conv2d", 3 * MIB, 8, 2, MIB), Place("aten::relu", MIB, 2, 0, 0)]
    flux = [Place("NNlib: conv! (src/conv.jl)", MIB, 4)]
    gone = {"reason": "nothing tells\nwhere", "remedy": "another"}
    return AllocationsDocument(
        created=told.created,
        polybench=told.polybench,
        argv=told.argv,
        study=told.study,
        settings=told.settings,
        host=told.host,
        warnings=["the machine\nis busy"],
        engines=[engine("torch", torch), engine("flux", flux), engine("tf", [], "unavailable", **gone)],
    )


def test_a_table_has_the_top_places_and_what_could_be_saved(document: AllocationsDocument) -> None:
    text = FORMATS["table"](document, 1)
    assert "torch/cpu: 4.00 MiB in 10.0 allocations, of which it could do without 2.00 (1.00 MiB)" in text
    assert "From a profiler: tensors" in text
    assert "aten::conv2d" in text
    assert "75%" in text
    assert "aten::relu" not in text
    assert "and 1 place more (--top)" in text
    assert "flux/cpu: 1.00 MiB in 4.00 allocations. From" in text  # nobody tells what is freed
    assert "tf/cpu: unavailable: nothing tells where (remedy: another)" in text
    assert text.endswith("warning: the machine is busy\n")
    assert "more" not in FORMATS["table"](document, 2)


def test_markdown_has_the_same_rows(document: AllocationsDocument) -> None:
    assert "| aten::relu " in FORMATS["markdown"](document, 10)


def test_programs_get_all_places(document: AllocationsDocument) -> None:
    rows = list(csv.DictReader(FORMATS["csv"](document, 1).splitlines()))
    assert [row["place"] for row in rows] == ["aten::conv2d", "aten::relu", "NNlib: conv! (src/conv.jl)", ""]
    assert (rows[0]["bytes_per_step"], rows[2]["reusable_per_step"]) == (str(3 * MIB), "")
    assert (rows[3]["status"], rows[3]["reason"]) == ("unavailable", "nothing tells where")
    text = FORMATS["json"](document, 1)
    assert msgspec.json.decode(text, type=AllocationsDocument) == document
    assert len(json.loads(text)["engines"][0]["places"]) == 2
