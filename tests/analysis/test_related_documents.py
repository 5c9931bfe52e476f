"""Programs that are shown with a study."""

from __future__ import annotations

from polybench.analysis.explanation import SavedDocuments
from polybench.analysis.related_documents import related_documents
from polybench.schema.result import Program
from polybench.schema.study import StudyDocument
from tests.simulated_machine import Machine, Script
from tests.user_programs import PROGRAM

NOTHING = SavedDocuments([], [], [])


def study(*programs: tuple[str, str]) -> StudyDocument:
    """Return a study of these programs by engine."""
    document = Machine(seed=1).measure({"torch": Script(), "tf": Script(), "jax": Script()}, processes=2)
    for result, (engine, text) in zip(document.results, programs, strict=True):
        result.engine, result.configuration, result.program = engine, f"{engine}/cpu", Program.of(text)
    return document


def test_an_edited_program_is_shown_as_a_difference_from_the_most_similar_one() -> None:
    edited = PROGRAM.replace("0.9", "0.8")
    programs = related_documents(study(("tf", "import tensorflow\n"), ("torch", PROGRAM), ("mine.py", edited)), NOTHING)
    *whole, (name, text) = programs.programs
    assert whole == [("tf/cpu", "import tensorflow\n"), ("torch/cpu", PROGRAM), ("mine.py/cpu", edited)]
    assert name == "mine.py/cpu compared with torch/cpu"
    changed = [line for line in text.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert [line[0] for line in changed] == ["-", "+"]
    assert "0.9 * state" in changed[0]
    assert "0.8 * state" in changed[1]


def test_equal_and_unlike_programs_have_no_difference() -> None:
    names = ("torch", PROGRAM), ("same.py", PROGRAM), ("unlike.py", "import torch\n\ndef setup(): ...\n")
    assert len(related_documents(study(*names), NOTHING).programs) == 3


def test_an_engine_is_not_compared_with_a_program() -> None:
    names = ("mine.py", PROGRAM), ("torch", PROGRAM.replace("0.9", "0.8")), ("tf", "import tensorflow\n")
    assert len(related_documents(study(*names), NOTHING).programs) == 3
