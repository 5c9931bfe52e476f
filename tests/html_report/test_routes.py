"""Pages of `polybench view`: list, filters, reports, comparisons, history and escaping."""

from __future__ import annotations

import html
import re
from pathlib import Path

import msgspec
import pytest

from polybench.html_report.routes import MAX_SECTIONS, Router
from polybench.html_report.server_pages import PAGE_SIZE
from polybench.schema.study import StudyDocument, to_json
from polybench.storage.store import Store
from tests.factories import measured, saved_again, study
from tests.figures.documents import full_layers, full_overhead, full_study, full_sweep
from tests.html_report.test_report import MALICIOUS, malicious_study


@pytest.fixture(autouse=True)
def require_extras() -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    pytest.importorskip("jinja2", reason="jinja2 is not installed")


def study_at(number: int, model: str = "lenet", hostname: str = "host") -> StudyDocument:
    """Create a small study that started in this minute of the day."""
    one = study(measured("torch/cpu", 0.01))
    clock = f"{number // 60:02}:{number % 60:02}"
    return msgspec.structs.replace(
        one,
        id=f"20250101-{clock.replace(':', '')}00-abcd",
        created=f"2025-01-01T{clock}:00Z",
        settings=msgspec.structs.replace(one.settings, model=model),
        host=msgspec.structs.replace(one.host, hostname=hostname),
    )


def text(router: Router, target: str) -> str:
    response = router.dispatch(target)
    assert response.status == 200, response.page.text
    return response.page.text


def names(page: str) -> list[str]:
    return re.findall(r'name="id" value="([^"]*)"', page)


def test_newest_studies_are_first_and_pages_are_linked(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(2 * PAGE_SIZE + 3):
        store.save(study_at(number))
    router = Router(store)
    first, last = text(router, "/"), text(router, "/?page=3")
    assert "103 studies, page 1 of 3." in first
    assert names(first)[0] == study_at(102).id
    assert len(names(first)) == PAGE_SIZE
    assert names(last) == [study_at(2).id, study_at(1).id, study_at(0).id]
    assert 'href="/?page=2" rel="next"' in first
    assert 'rel="next"' not in last
    for number in ("99", "0", "-1", "x", "9" * 5000, "٣"):
        assert names(text(router, f"/?page={number}"))  # invalid numbers are not errors


def test_filters_match_the_command_and_stay_in_links(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(PAGE_SIZE + 10):
        store.save(study_at(number, hostname="a&b" if number else "other"))
    store.save(study_at(200, model="dlframeworks-cnn"))
    router = Router(store)
    page = text(router, "/?model=lenet&host=a%26b&engine=&since=2025-01-01&version=")
    assert f"{PAGE_SIZE + 9} of {PAGE_SIZE + 11} studies" in page
    (link,) = re.findall(r'href="([^"]*)" rel="next"', page)
    assert names(text(router, html.unescape(link))) == [study_at(number).id for number in range(9, 0, -1)]
    assert 'name="host" value="a&amp;b"' in page
    assert "No saved study matches" in text(router, "/?engine=flux")
    assert "version &#39;2.13&#39;: expected NAME=NUMBER" in router.dispatch("/?version=2.13").page.text


def test_empty_folder_shows_how_to_create_a_study(tmp_path: Path) -> None:
    assert "polybench compare" in text(Router(Store(tmp_path / "none")), "/")
    assert "No ranked configuration" in text(Router(Store(tmp_path / "none")), "/history")


def test_unreadable_study_is_listed_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "20250101-000000-dead.json").write_text("{")
    router = Router(Store(tmp_path))
    assert "unreadable: " in text(router, "/")
    assert " disabled>" in text(router, "/")
    response = router.dispatch("/report?id=20250101-000000-dead")
    assert response.status == 400
    assert "cannot read the study" in response.page.text


def test_report_contains_related_documents_and_a_link_to_the_list(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(full_study())
    store.save(full_layers(full_study()))
    page = text(Router(store), f"/report?id={full_study().id}")
    assert "tf is 1.25" in page
    assert "Time of each layer" in page
    assert '<a class="brand" href="/">' in page
    assert "self-contained" not in page


def test_report_of_several_studies_and_a_sweep(tmp_path: Path) -> None:
    store = Store(tmp_path)
    studies = [full_study(), saved_again(full_study(), batch_size=256)]
    for one in (*studies, full_sweep()):
        store.save(one)
    router = Router(store)
    assert "Throughput of a sweep" in text(router, f"/report?id={full_sweep().id}")
    assert full_sweep().id in text(router, "/")
    page = text(router, f"/report?id={studies[0].id}&id={studies[1].id}&id={full_sweep().id}")
    assert "3 reports" in page
    assert "Step times of each study" in page
    assert router.dispatch("/report").status == 400
    many = "&".join(f"id={number}" for number in range(MAX_SECTIONS + 1))
    assert "a report needs 1 to 12" in router.dispatch(f"/report?{many}").page.text


def test_a_sweep_or_overhead_is_one_line_without_its_points(tmp_path: Path) -> None:
    store = Store(tmp_path)
    points = [study_at(number) for number in (1, 2, 3)]
    for one in (*points, study_at(4)):
        store.save(one)
    sweep = full_sweep()
    parts = [msgspec.structs.replace(point, id=points[number].id) for number, point in enumerate(sweep.points)]
    store.save(msgspec.structs.replace(sweep, points=parts))
    store.save(msgspec.structs.replace(full_overhead(), batch_sizes=[1], studies=[study_at(4).id]))
    router = Router(store)
    page = text(router, "/")
    assert sorted(names(page)) == [full_overhead().id, sweep.id]
    assert "lenet, 3 points over threads 1, 2, 4" in page
    assert "190 images/<wbr>s torch/<wbr>cpu, threads 4" in page
    assert "2 studies" in page
    assert names(text(router, "/?engine=torch&since=2025-01-01")) == names(page)
    report = text(router, f"/report?id={full_overhead().id}")
    assert "Overhead of a step: torch/cpu 2.00 ms." in report
    assert f'<a href="/report?id={study_at(4).id}">' in report  # a point
    assert "cannot be compared" in router.dispatch(f"/diff?a={sweep.id}&b={points[0].id}").page.text


def test_comparison_is_from_older_to_newer_and_can_be_swapped(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old, new = study_at(1), study_at(2)
    new.title = "A <title>"
    new.results[0] = measured("torch/cpu", 0.02, versions={"torch": "2.13.0"})
    store.save(old)
    store.save(new)
    router = Router(store)
    page = text(router, f"/diff?id={new.id}&id={old.id}")
    assert 'class="change slower"' in page
    assert f">A &lt;title&gt;</a> ({new.id}) on " in page
    (swapped,) = re.findall(r'href="(/diff[^"]*)"', page)
    assert 'class="change faster"' in text(router, html.unescape(swapped))
    assert "a comparison needs two" in router.dispatch(f"/diff?id={old.id}").page.text
    (tmp_path / "copy.json").write_bytes(to_json(new))
    assert "expected the name of its file" in router.dispatch(f"/diff?a={new.id}&b=copy").page.text


def test_history_has_a_figure_and_a_row_per_study(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(5):
        store.save(study_at(number))
    store.save(study_at(9, model="dlframeworks-cnn"))
    (tmp_path / "20250120-000000-dead.json").write_text("{")
    assert "newest 6 of 6 studies" in text(Router(store), "/history")
    page = text(Router(store), "/history?model=lenet")
    assert "newest 5 of 5 studies" in page
    assert "Table of 5 studies" in page
    assert 'data-figure="s1-history"' in page
    assert 'data-figure="s2-history"' not in page


def test_texts_of_studies_and_addresses_are_escaped(tmp_path: Path) -> None:
    store = Store(tmp_path)
    malicious = msgspec.structs.replace(malicious_study(), id="20250101-000000-bad")
    store.save(malicious)
    store.save(saved_again(malicious, "20250102-000000-bad"))
    (tmp_path / f"{MALICIOUS.replace('/', '_')}.json").write_text("{}")
    router = Router(store)
    quoted = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22%27"
    for target in (
        "/", "/history", f"/?model={quoted}", f"/?since={quoted}", f"/{quoted}", f"/report?id={quoted}",
        "/report?id=20250101-000000-bad", f"/history?host={quoted}",
        "/diff?id=20250101-000000-bad&id=20250102-000000-bad",
    ):  # fmt: skip
        page = router.dispatch(target).page.text
        assert "<script>alert" not in page, target
    assert "&lt;script&gt;alert(1)" in text(router, "/")
