"""Text of a network file enters generated programs as literals, comments and attributes, never as code."""

from __future__ import annotations

import ast
import itertools
import keyword
import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from polybench.engines.torch.network_code import _RESERVED
from polybench.networks.layers import Dense, Flatten, Layer, Named, Residual, walk
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.networks.source_text import attributes, comment, escape, literal, wrapped
from polybench.schema.options import Configuration, Workload
from polybench.scripts import make_script
from polybench.scripts.emitters import EMITTERS
from polybench.scripts.network_code import export, write_code
from tests.commands import printed
from tests.configured_julia import configured_julia
from tests.example_networks import BIASED, PATCHED, SEQUENCES, TEXT

HOSTILE = {
    "docstring": 'x"""; __import__("os").system("touch pwned"); """',
    "single_quotes": "'''; __import__('os').system('touch pwned'); '''",
    "interpolation": '$(touch("pwned")) $x `touch pwned` {name!r} {{}} %s \\g<1> \\1',
    "backslash": 'a\\"; import os  # "\\',
    "line_breaks": "a\nimport os\r\nimport os\rimport os\x0bimport os\x0cimport os",
    "unicode_line_breaks": "a\u2028import os\u2029import os\x85import os\x1cimport os",
    "controls": "\x00\x07\x1b[31m\x7f\u202e\ufeff\U000e0001\u00a0",
    "julia_comment": '=# touch("pwned") #= =#',
    "escape": "\\u0022; exit() #",
    "template": "# <network>\n#: if images\n",
}
PYTHON = ("torch", "tf", "keras", "jax")
JULIA = ("flux", "lux")
NETWORKS = {"torch": (PATCHED, TEXT, SEQUENCES), "tf": (TEXT, BIASED), "keras": (TEXT, BIASED), "jax": (PATCHED, TEXT)}
NETWORKS |= {"flux": (PATCHED, TEXT), "lux": (PATCHED, TEXT)}
LITERAL = re.compile(r'"(?:[^"\\$]|\\.)*"')


def renamed(model: Model, names: dict[str, str]) -> Model:
    """Return the model with other names of layers, also where another layer shares their weight."""

    def other(layer: Layer) -> Layer:
        if isinstance(layer, Residual):
            return Residual(tuple(map(other, layer.body)), tuple(map(other, layer.shortcut)))
        if not isinstance(layer, Named):
            return layer
        fields = {"name": names.get(layer.name, layer.name)}
        if isinstance(layer, Dense) and layer.tied:
            fields["tied"] = names.get(layer.tied, layer.tied)
        return msgspec.structs.replace(layer, **fields)

    return msgspec.structs.replace(model, layers=tuple(map(other, model.layers)))


def layer_names(model: Model) -> list[str]:
    return [layer.name for layer in walk(model.layers) if isinstance(layer, Named)]


def hostile(model: Model, text: str) -> Model:
    """Return the model with this text in its name, its summary and the names of all layers."""
    names = {name: f"{text}{number}" for number, name in enumerate(layer_names(model))}
    return msgspec.structs.replace(renamed(model, names), name=text, summary=text)


def harmless(model: Model, framework: str) -> Model:
    """Return the model, for Keras with names that its layers cannot have: then the program has a table of them."""
    if framework not in ("tf", "keras"):
        return model
    names = {name: f"é{number}" for number, name in enumerate(layer_names(model))}
    return msgspec.structs.replace(renamed(model, names), summary="Harmless")


def cases(frameworks: tuple[str, ...]) -> list[Any]:
    return [
        pytest.param(framework, model, id=f"{framework}-{model.name}")
        for framework in frameworks
        for model in NETWORKS[framework]
    ]


def test_every_framework_is_checked_with_hostile_text() -> None:
    assert {*PYTHON, *JULIA} == set(EMITTERS)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(("framework", "model"), cases(PYTHON))
def test_hostile_text_adds_no_statement_to_a_python_program(framework: str, model: Model, text: str) -> None:
    found = ast.parse(write_code(hostile(model, text), framework))
    plain = ast.parse(write_code(harmless(model, framework), framework))
    docstring = ast.get_docstring(found, clean=False)
    if framework == "jax":
        assert docstring == f"{text.partition('~')[0]} in JAX."
        check_jax_program(plain, found, hostile(model, text), text)
        return
    if framework == "torch":
        assert docstring == f"{text.partition('~')[0]} in PyTorch."
        check_torch_program(plain, found, text)
        return
    assert [type(node) for node in ast.walk(found)] == [type(node) for node in ast.walk(plain)]
    assert docstring == f"{text.partition('~')[0]} in {'TensorFlow' if framework == 'tf' else 'Keras'}."


def check_jax_program(plain: ast.Module, found: ast.Module, model: Model, text: str) -> None:
    """Check that names of layers are only in literals, or in f-strings of `name` and `number`."""
    function = next(node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == "network")
    docstring = ast.get_docstring(function, clean=False) or ""
    assert re.sub(r"\n\s+", " ", docstring) == f"{text[:1].upper()}{text[1:]}."
    constants = {node.value for node in ast.walk(found) if isinstance(node, ast.Constant)}
    # No tensor has the name of a layer without weights.
    names = {layer.name for layer in walk(model.layers) if isinstance(layer, Named) and layer.weight_shapes()}
    assert {name for name in names if not {name, f"{name}.weight"} & constants} == set()
    for kind in (ast.Call, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.FormattedValue):
        counts = [sum(isinstance(node, kind) for node in ast.walk(tree)) for tree in (plain, found)]
        assert counts[0] == counts[1]


def check_torch_program(plain: ast.Module, found: ast.Module, text: str) -> None:
    """Check that names of layers add only attributes, and the function that gives their names to tensors."""
    module = next(node for node in found.body if isinstance(node, ast.ClassDef) and node.name == "Network")
    docstring = ast.get_docstring(module, clean=False) or ""
    assert re.sub(r"\n\s+", " ", docstring) == f"{text[:1].upper()}{text[1:]}."
    helpers = {
        *("re.sub", "int", "zip", "canonical", "tensors.items", "tensor.chunk"),
        *("name.replace", "name.split", "NAMES.get", "'.'.join"),
    }
    calls = [
        {
            re.sub(r"self\.\w+", "self.layer", ast.unparse(one.func))
            for one in ast.walk(tree)
            if isinstance(one, ast.Call)
        }
        for tree in (plain, found)
    ]
    assert calls[1] <= calls[0] | helpers
    modules = {ast.unparse(one) for one in ast.walk(plain) if isinstance(one, ast.Import | ast.ImportFrom)}
    imported = {ast.unparse(one) for one in ast.walk(found) if isinstance(one, ast.Import | ast.ImportFrom)}
    assert imported <= modules | {"import re"}
    inserted = [
        {ast.unparse(one.value) for one in ast.walk(tree) if isinstance(one, ast.FormattedValue)}
        for tree in (plain, found)
    ]
    numbers = re.compile(r"part|match\[1\]|int\(match\[1\]\) \+ \d+")
    assert [one for one in inserted[1] - inserted[0] if not numbers.fullmatch(one)] == []


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(("framework", "model"), cases(JULIA))
def test_hostile_text_stays_in_literals_and_comments_of_a_julia_program(
    framework: str, model: Model, text: str
) -> None:
    check_julia_program(write_code(model, framework), write_code(hostile(model, text), framework))


def check_julia_program(plain: str, found: str) -> None:
    """Check that two programs differ in comments, and in the literals of names, only."""
    assert found.startswith("# ")
    statements = [[line for line in one.split("\n") if not line.startswith("# ")] for one in (plain, found)]
    for before, after in zip(*statements, strict=True):
        if before != after:  # then it has no literal but that of a name
            assert LITERAL.sub('""', after) == LITERAL.sub('""', before)
            assert '"' not in LITERAL.sub("", after)
        assert LITERAL.sub("", after).isascii() or before == after


_PARSE = r"""
parts(node) = filter(part -> !(part isa LineNumberNode), node.args)
# Not a tuple: Julia would compile a method for each of their types.
shape(node) = node isa Expr ? Any[node.head, Any[shape(part) for part in parts(node)]] : typeof(node)
for folder in ARGS
    parsed = [Meta.parseall(read(joinpath(folder, file), String)) for file in ("plain.jl", "hostile.jl")]
    shape(parsed[1]) == shape(parsed[2]) || error("$folder: other statements")
end
"""


def test_julia_parses_hostile_text_as_literals(tmp_path: Path) -> None:
    julia = configured_julia()
    folders = []
    for framework in JULIA:
        for model, text in itertools.product(NETWORKS[framework], HOSTILE.values()):
            folders.append(folder := tmp_path / str(len(folders)))
            folder.mkdir()
            (folder / "plain.jl").write_text(write_code(model, framework), "utf-8")
            (folder / "hostile.jl").write_text(write_code(hostile(model, text), framework), "utf-8")
    (tmp_path / "parse.jl").write_text(_PARSE, "utf-8")
    command = [julia.executable, "--startup-file=no", str(tmp_path / "parse.jl"), *map(str, folders)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("engine", ["torch", "tf", "keras", "jax", "flux"])
def test_hostile_text_adds_no_statement_to_a_script(engine: str, text: str) -> None:
    scripts = []
    model = NETWORKS[engine][0]
    for one in (harmless(model, engine), hostile(model, text)):
        workload = Workload(one.name, "synthetic", 4, Optimizer("sgd"), "fp32", 1)
        scripts.append(make_script(Configuration(engine, (), "cpu"), workload, 3, one))
    plain, found = scripts
    assert plain is not None
    assert found is not None
    if engine == "flux":
        check_julia_program(plain, found)
        return
    if engine == "torch":
        check_torch_program(ast.parse(plain), ast.parse(found), text)
        return
    if engine == "jax":
        check_jax_program(ast.parse(plain), ast.parse(found), hostile(model, text), text)
        return
    assert [type(node) for node in ast.walk(ast.parse(found))] == [type(node) for node in ast.walk(ast.parse(plain))]
    name, docstring = text.partition("~")[0], ast.get_docstring(ast.parse(found), clean=False) or ""
    assert docstring.startswith(f"{name} in ")


def test_the_summary_of_a_network_file_is_the_docstring_of_its_program(tmp_path: Path) -> None:
    """The summary closes the docstring, and runs a program, if it is inserted as it is."""
    text = 'x"""; __import__("os").system("touch pwned"); """'
    net = tmp_path / "net.toml"
    lines = printed("models", "lenet", "--format", "toml").splitlines()
    net.write_text("\n".join(f"summary = '{text}'" if one.startswith("summary") else one for one in lines), "utf-8")
    printed("export", net, "--framework", "torch", "-o", tmp_path / "code.py")
    tree = ast.parse((tmp_path / "code.py").read_text("utf-8"))
    [module] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Network"]
    assert ast.get_docstring(module) == f"{text[:1].upper()}{text[1:]}."
    assert "system" not in {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_literal_is_the_text_and_a_comment_is_one_line(text: str) -> None:
    assert ast.literal_eval(literal(text)) == text
    assert ast.literal_eval(f'"""{escape(text)}."""') == f"{text}."
    assert "$" not in literal(text)
    assert comment(text).startswith("# ")
    assert len(comment(text).splitlines()) == 1
    assert ast.parse(comment(text)).body == []


def test_ordinary_text_is_unchanged() -> None:
    assert literal("block1.conv: étage 2, 层") == '"block1.conv: étage 2, 层"'


def test_an_attribute_that_is_reserved_or_taken_gets_an_underscore() -> None:
    names = ["a.b", "a-b", "a_b", "class", "class_", "1x", "_y", "é"]
    found = attributes(names, keyword.iskeyword)
    assert list(found.values()) == ["a_b", "a_b_", "a_b__", "class_", "class__", "layer_1x", "layer__y", "layer__"]
    assert all(name.isidentifier() for name in found.values())


def test_a_call_is_broken_where_it_exceeds_the_width() -> None:
    def call(width: int) -> list[str]:
        return wrapped("  f(", ["one", "two=3"], ").g()", width=width)

    assert call(21) == ["  f(one, two=3).g()"]
    assert call(len("  f(one, two=3).g()")) == ["  f(one, two=3).g()"]
    assert call(len("  f(one, two=3).g()") - 1) == ["  f(", "      one, two=3", "  ).g()"]
    assert call(len("      one, two=3")) == ["  f(", "      one, two=3", "  ).g()"]
    assert call(len("      one, two=3") - 1) == ["  f(", "      one,", "      two=3,", "  ).g()"]
    assert wrapped("  f(", [], ").g()", width=3) == ["  f().g()"]


ISSUE = ("class", "lambda", "True", "forward", "train", "parameters", "state_dict", "zero_grad")
OWN = ("end", "function", "begin", "self", "x", "training", "T_destination", "eval", "network", "None", "import", "w")
KERAS = ("re_lu", "flatten", "input_layer", "flatten_1", "keras", "layers", "inputs", "np", "Path", "weights", "layer")


def with_names(*names: str) -> Model:
    """Return a network of dense layers with these names."""
    first, *others = names
    layers = (Flatten(), Dense(first, 12, 4), *(Dense(name, 4, 4) for name in others))
    return msgspec.structs.replace(BIASED, layers=layers, input_shape=(3, 2, 2), classes=4)


def run(model: Model, framework: str, folder: Path) -> dict[str, Any]:
    """Return the variables of the program after it ran; its weights do not depend on the names of layers."""
    random = np.random.default_rng(0)
    weights = {name: random.random(shape, np.float32) for name, shape in model.tensor_shapes().items()}
    export(model, weights, framework, folder / "net.py")
    return runpy.run_path(str(folder / "net.py"))


def test_layers_with_names_of_python_and_pytorch_give_a_program_that_loads(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = with_names(*ISSUE, *OWN, *KERAS)
    plain = renamed(model, {name: f"dense{number}" for number, name in enumerate(layer_names(model))})
    inputs = torch.rand(2, *model.input_shape)
    expected = run(plain, "torch", tmp_path)["network"].eval()(inputs)
    loaded = run(model, "torch", tmp_path)
    assert torch.equal(loaded["network"].eval()(inputs), expected)
    with np.load(tmp_path / "net.npz") as arrays:
        assert set(arrays) == set(model.weight_shapes())
    assert {f"{name}_.weight" for name in ISSUE} <= set(loaded["network"].state_dict())
    assert {"x.weight", "end.weight", "keras.weight"} <= set(loaded["network"].state_dict())


def test_attention_and_a_layer_of_its_name_are_different_modules(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    names = {"attention": "train", "biased": "a", "wide": "a_output", "narrow": "train_query_key_value"}
    network = run(renamed(TEXT, names), "torch", tmp_path)["network"]
    expected = run(TEXT, "torch", tmp_path)["network"]
    tokens = torch.arange(7)[None]
    assert torch.equal(network.eval()(tokens), expected.eval()(tokens))


def test_every_attribute_of_a_module_is_reserved() -> None:
    torch = pytest.importorskip("torch")
    assert {name for name in dir(torch.nn.Module()) if not name.startswith("_")} <= _RESERVED


def test_layers_with_names_of_keras_give_a_program_that_loads(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    model = with_names(*ISSUE, *OWN, *KERAS)
    plain = renamed(model, {name: f"dense{number}" for number, name in enumerate(layer_names(model))})
    inputs = np.random.default_rng(0).random((2, 2, 2, 3), np.float32)
    expected = run(plain, "keras", tmp_path)["network"].predict(inputs, verbose=0)
    found = run(model, "keras", tmp_path)["network"].predict(inputs, verbose=0)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", ["class", "x", "json", "layers", "embedding"])
def test_a_layer_whose_weight_another_shares_is_no_name_of_the_keras_program(name: str) -> None:
    tree = ast.parse(write_code(renamed(TEXT, {"embedding": name}), "keras"))
    [network] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "make_network"]
    assigned = {node.id for node in ast.walk(network) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assert f"shared_{name}" in assigned
    assert assigned <= {f"shared_{name}", "inputs", "x", "shortcut"}
