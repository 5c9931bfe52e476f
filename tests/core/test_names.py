import pytest

from polybench.core.errors import BadInput
from polybench.core.names import pick

TABLE = {"lenet": 1, "resnet32": 2, "resnet44": 3}
ALL = "models are: lenet, resnet32, resnet44"


def test_a_known_name_gives_its_entry() -> None:
    assert pick("resnet32", TABLE, "model") == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lenett", f"unknown model 'lenett'; did you mean 'lenet'? {ALL}"),
        ("resnet34", f"unknown model 'resnet34'; did you mean 'resnet44' or 'resnet32' or 'lenet'? {ALL}"),
        ("zzz", f"unknown model 'zzz'; {ALL}"),
        ("", f"unknown model ''; {ALL}"),
    ],
)
def test_an_unknown_name_is_answered_with_the_valid_ones(name: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        pick(name, TABLE, "model")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("tensorflow", "tf"),
        ("TensorFlow", "tf"),
        ("pytorch", "torch"),
        ("julia", "flux"),
        ("flux.jl", "flux"),
        ("Flux.jl", "flux"),
    ],
)
def test_an_engine_is_known_by_what_others_call_it(name: str, engine: str) -> None:
    with pytest.raises(BadInput, match=f"^unknown engine '{name}'; did you mean '{engine}'[?] engines are: "):
        pick(name, dict.fromkeys(("flux", "jax", "tf", "torch")), "engine")
    with pytest.raises(BadInput, match=f"^unknown model '{name}'; models are: lenet$"):
        pick(name, {"lenet": 1}, "model")


def test_the_plural_is_that_of_the_noun() -> None:
    with pytest.raises(BadInput, match=r"; variants of torch are: compile$"):
        pick("eager", {"compile": 1}, "variant of torch")


def test_an_empty_table_has_nothing_to_offer() -> None:
    with pytest.raises(BadInput, match=r"^unknown model 'x'; there are no models$"):
        pick("x", {}, "model")
