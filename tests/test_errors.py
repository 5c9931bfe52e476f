"""Errors: exported, each with an exit code of the public interface; and unknown names."""

from __future__ import annotations

import inspect

import pytest

import polybench
from polybench import errors
from polybench.errors import BadInput, PolybenchError, lookup_or_suggest

PUBLIC = {
    name: member
    for name, member in vars(errors).items()
    if inspect.isclass(member) and issubclass(member, BaseException)
}


def test_every_error_is_in_the_hierarchy_and_exported() -> None:
    assert len(PUBLIC) >= 5
    for name, error in PUBLIC.items():
        assert issubclass(error, PolybenchError)
        assert name in polybench.__all__
        assert getattr(polybench, name) is error
        assert error.__module__ == "polybench", f"{name} needs its public module"


@pytest.mark.parametrize(
    ("name", "code"),
    [("ConfigurationFailed", 1), ("BadInput", 2), ("RequiredEngineMissing", 3), ("EngineUnavailable", 4)],
)
def test_errors_have_the_exit_codes_of_the_interface(name: str, code: int) -> None:
    assert PUBLIC[name].exit_code == code


TABLE = {"lenet": 1, "resnet32": 2, "resnet44": 3}
ALL = "models are: lenet, resnet32, resnet44"


def test_a_known_name_returns_its_entry() -> None:
    assert lookup_or_suggest("resnet32", TABLE, "model") == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lenett", f"unknown model 'lenett'; did you mean 'lenet'? {ALL}"),
        ("resnet34", f"unknown model 'resnet34'; did you mean 'resnet44' or 'resnet32' or 'lenet'? {ALL}"),
        ("zzz", f"unknown model 'zzz'; {ALL}"),
        ("", f"unknown model ''; {ALL}"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_valid_names(name: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        lookup_or_suggest(name, TABLE, "model")
    assert str(caught.value) == message


def test_a_part_of_a_name_is_suggested() -> None:
    with pytest.raises(BadInput, match=r"unknown column 'median'; did you mean 'median_step_time'[?]"):
        lookup_or_suggest("median", {"median_step_time": 1, "speedup": 2}, "column")
    with pytest.raises(BadInput, match="unknown column 'x'; columns are"):
        lookup_or_suggest("x", {"max_step_time": 1}, "column")


@pytest.mark.parametrize(
    ("name", "engine"), [("TensorFlow", "tf"), ("pytorch", "torch"), ("julia", "flux"), ("Flux.jl", "flux")]
)
def test_common_names_of_engines_are_suggested(name: str, engine: str) -> None:
    with pytest.raises(BadInput, match=f"^unknown engine '{name}'; did you mean '{engine}'[?] engines are: "):
        lookup_or_suggest(name, dict.fromkeys(("flux", "jax", "tf", "torch")), "engine")
    with pytest.raises(BadInput, match=f"^unknown model '{name}'; models are: lenet$"):
        lookup_or_suggest(name, {"lenet": 1}, "model")


def test_the_plural_is_that_of_the_noun() -> None:
    with pytest.raises(BadInput, match=r"; variants of torch are: compile$"):
        lookup_or_suggest("eager", {"compile": 1}, "variant of torch")


def test_an_empty_table_has_no_suggestions() -> None:
    with pytest.raises(BadInput, match=r"^unknown model 'x'; the list of models is empty$"):
        lookup_or_suggest("x", {}, "model")
