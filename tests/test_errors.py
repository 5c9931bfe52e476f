"""Errors: exported, each with an exit code of the public interface; and unknown names."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import polybench
from polybench import errors
from polybench.engines import ENGINES
from polybench.errors import BadInput, PolybenchError, lookup_or_suggest, mask
from polybench.networks import MODELS
from polybench.schema.metrics import METRICS
from polybench.schema.options import Study

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


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("http://user:pass@word@host:80/x", "http://***@host:80/x"),
        ("pip install git+https://abc@github.com/x", "pip install git+https://***@github.com/x"),
        ("//user:password@host", "//***@host"),
        (str(Path("https://user:password@host/x.toml")), "https:/***@host/x.toml"),
        ("https://host/x?token=abcdefgh&y=1", "https://host/x?token=***&y=1"),
        ("https://host/x?y=1&sig=abcdefgh%3D", "https://host/x?y=1&sig=***"),
        ("AWS_SECRET_ACCESS_KEY=abcdefgh", "AWS_SECRET_ACCESS_KEY=***"),
        ("password = 'x'", "password = '***'"),
        ('{"access_token": "abcdefgh", "n": 1}', '{"access_token": "***", "n": 1}'),
        ("Authorization: Basic dXNlcjpwdw==", "Authorization: Basic ***"),
        ("curl -H 'authorization: Bearer abc.def-1'", "curl -H 'authorization: Bearer ***'"),
        *((f"<{token}>", "<***>") for token in (
            "ghp_0123456789abcdefghij", "github_pat_0123456789abcdefghij_0123456789", "glpat-0123456789abcdefghij",
            "hf_0123456789abcdefghij", "sk-0123456789abcdefghij", "sk-proj-0123456789abcdefghij-_x",
            "xoxb-123456789012-abcdef", "AKIAIOSFODNN7EXAMPLE", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.x-_y",
            "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
        )),
    ],
)  # fmt: skip
def test_secrets_are_masked(text: str, masked: str) -> None:
    assert mask(text) == masked == mask(masked)
    assert str(BadInput(f"cannot read {text}")) == f"cannot read {masked}"


_NAMES = st.sampled_from(sorted({*Study.__struct_fields__, *METRICS, *ENGINES, *MODELS, "max_tokens", "PWD", "sk"}))
_PLAIN = st.one_of(
    st.from_regex(r"[0-9a-f]{7,64}", fullmatch=True),
    st.from_regex(r"\d{1,3}(\.\d{1,4}){1,3}([a-z]+\d)?(\+cu\d{3})?", fullmatch=True),
    st.from_regex(r"(/[A-Za-z0-9_.@+-]{1,12}){1,6}", fullmatch=True),
    st.from_regex(r"https?://[a-z0-9.-]{1,20}(:\d{1,5})?(/[A-Za-z0-9_.@-]{1,12}){0,3}", fullmatch=True),
    st.floats().map(str),
    st.sampled_from([f"{engine}+{name}@old/cpu" for engine in ENGINES for name in ENGINES[engine].variants]),
    _NAMES,
)


@given(st.lists(st.tuples(_NAMES, st.sampled_from(["=", " = ", ": ", " ", "@", ", "]), _PLAIN), max_size=5))
def test_ordinary_values_are_not_masked(parts: list[tuple[str, str, str]]) -> None:
    text = "; ".join(map("".join, parts))
    assert mask(text) == text


def test_masking_takes_time_in_proportion_to_the_text() -> None:
    for part in (
        "/",
        "//a",
        "token",
        "token= ",
        "eyJa.",
        "sk-a",
        "-----BEGIN PRIVATE KEY-----",
        "//x@",
        "a:",
        "Bearer ",
    ):
        mask(part * (1_000_000 // len(part)))  # a quadratic pattern would take hours


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
