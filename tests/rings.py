"""The rings of the tests: which tests need what, and which cases are left to the wide ring.

`make pure`, `make engines` and so on run a ring each (CONTRIBUTING.md, "Tests").
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

import pytest

_JULIA = (
    *(
        "engines/flux/(lux/)?test_(?!julia_files|emitter)",
        "engines/test_.*lux",
        "importer/test_flux",
        "trace/test_flux_recorder",
    ),
    "scripts/.*(like.*(flux|lux)|the_flux_program|julia_example|julia_parses|plain_lux)",
    "cli/test_julia_versions",
)

RINGS = {
    "julia": "|".join(_JULIA),
    "engines": r"(engines|gpu|parity_check|scripts)/",
    "extras": r"(cluster|importer|trace)/|cli/test_(bisect|history|import|merge|since_last|trace|versions)|test_action",
    "process": r"(runner|worker|protocol)/|cli/test_(cli|completion|terminal)|test_(examples|packaging|plugins)",
    "simulated": r"results/|test_simulated_machine|benchmarks/",
    "pure": r"",
}
"""Patterns of tests below `tests`; a test is in the first ring that matches. All but Julia's start no Julia."""

SMOKE = "test_networks.py::test_a_network_with_every_layer_passes|test_optimizers.py::test_every_optimizer"
"""The checks of training that jax and keras have in the gate: all layers of images, in float64 and as timed; AdamW with
a schedule, step by step, in one block, and after a reset.
"""


class Wide(NamedTuple):
    """Cases of the wide ring: patterns of a test's ID and of its parameters, and what stands for them."""

    test: str
    case: str
    instead: str


RULES = (
    Wide(
        "tests/engines/(?!flux/|test_parity.py::test_float64_losses)",
        r"lux",
        "flux has the same kernels (NNlib), and lux trains lenet",
    ),
    Wide(f"tests/engines/(?!.*({SMOKE})|keras/)", r"keras(\+jax|\+torch)?", "SMOKE, and tf has Keras's layers"),
    Wide("tests/engines/test_networks.*every_layer_passes", r"keras\+jax", "keras+torch: JAX compiles each operation"),
    Wide("tests/engines/test_(parity|replicas)", "jax", "SMOKE, with the same blocks and resets; torch and tf"),
    Wide(
        "tests/engines/test_parity",
        r"torch\+(compile|foreach|math_attention)|tf\+xla",
        "the engine; test_variants shows what each changes, and that its losses are the same",
    ),
    Wide("tests/engines/test_parity", r"flux\+.+", "flux; test_variants shows what each variant changes"),
    Wide(
        "tests/engines/test_.*bug", "flux|jax|tf|keras", "each kind of bug in torch: the check does not know the engine"
    ),
    Wide("tests/engines/test_optimizers", "(flux|jax)-(?!adamw).*", "AdamW with a schedule, and every rule in torch"),
    Wide("tests/scripts/.*trains_like", "dlframeworks|resnet32", "lenet, written in the same way"),
    Wide("tests/scripts/.*trains_like", r".+\+.+", "the framework without the variant"),
    Wide("tests/scripts/.*trains_like", "keras", "tf has the same program"),
    Wide("tests/scripts/.*trains_like", "lux", "flux, and engines/flux/lux/test_programs"),
    Wide("tests/scripts/.*(tokens|any_network)_trains_like", "flux|jax|keras", "torch and tf, and lenet"),
    Wide("tests/engines/.*published", ".*", "the networks with every layer"),
    Wide("tests/engines/test_forward_pass", r"(torch|tf)\+.+", "the engine alone; test_parity trains with the variant"),
    Wide("tests/engines/test_operations.*(sequence|vision|decoder)", "jax", "torch and tf, and jax's other operations"),
    Wide("tests/engines/test_forward_pass", "(flux|jax|keras.*)-sequences", "torch and tf, and the other network"),
    Wide("tests/engines/flux/test_worker", "POLYBENCH_COLD_START=yes", "the start with cached code"),
    Wide(
        "tests/benchmarks/test_baselines", "flux|torch|tf|keras", "test_programs builds these programs of benchmarks/"
    ),
    Wide("tests/runner/test_pinning", "torch", "fake: threads and children inherit the cores"),
    Wide("tests/scripts/test_network_code.*(round_trip|plain_jax)", "resnet32|mobile|imdb|vit", "lenet and char-gpt"),
    Wide("tests/scripts/test_network_code.*plain_lux", "vit|.*toml", "lenet"),
    Wide("tests/importer/.*every_plain_program", "(?!lenet).*", "lenet, and modules with each layer"),
    Wide("tests/importer/test_flux.*keeps_its_weights", ".*", "a transformer that goes through Flux, with its proof"),
    Wide("tests/engines/.*transformers", "jax", "torch and tf have the same layers, and jax those of `everything`"),
    Wide(
        "tests/engines/test_networks.*(sequence_layer|of_transformers)",
        ".*flux",
        "engines/flux/test_programs trains the same networks, and flux those of images",
    ),
    Wide("tests/engines/test_networks.*of_transformers", "patched-tf", "text, and test_operations has each operation"),
    Wide("tests/engines/keras/test_engine.*(_is_eager|_once)", r"keras\+.+", "keras; SMOKE trains in the others"),
    Wide("tests/engines/.*transformers_in_tensorflow", "(?!KerasNormEpsilon).*", "the same kinds of bugs in torch"),
    Wide(
        "tests/engines/test_networks",
        r"torch\+.+",
        "torch; lenet in test_parity trains with the layout of channels_last",
    ),
    Wide(
        "tests/engines/test_networks",
        r"tf\+(no_fusion|unrolled)",
        "tf: on the CPU, the first has its graph (tf/test_engine)",
    ),
    Wide(
        "tests/engines/test_networks.*(nine_digits|sequence|own_dropout|lstm_options)", "jax.*", "SMOKE; torch and tf"
    ),
    Wide(
        "tests/engines/test_optimizers.*canonical",
        r"(tf|keras)(\+.+)?-(?!adamw).*",
        "AdamW with a schedule, and every rule in torch",
    ),
    Wide("tests/engines/test_parity.*(snapshots_are|float32)", r".+\+.+", "the engine, and its own float64"),
    Wide("tests/engines/test_variants.*silently_off", r"jax.*|keras\+jax.*|.*BACKENDS", "torch with one variable"),
    Wide("tests/engines/test_operations.*(padding|bf16)", "jax", "torch and tf, and jax's other operations"),
    Wide(
        "tests/engines/test_requirements.*(separates|closes)", "jax", "torch and tf; jax/test_engine ends its pipeline"
    ),
    Wide("tests/engines/jax/test_cuda_(programs.*step_for_cuda|calls.*each_bug)", ".*", "the other programs for CUDA"),
    Wide("tests/scripts/.*(tokens|any_network)_trains_like", "tf", "torch; lenet in tf"),
    Wide(
        "tests/scripts/.*transformers_in_torch", ".*", "test_plain trains char-gpt, and test_torch imports both kinds"
    ),
    Wide("tests/scripts/test_network_code.*plain_jax", "lenet|char-gpt", "a network with every padding"),
    Wide(
        "tests/scripts/test_network_code.*(round_trip_from_torch|plain_lux)", "lenet", "padding, and lux trains lenet"
    ),
    Wide("tests/engines/test_forward_pass", "keras-.*", "tf has Keras's layers"),
    Wide(
        "tests/engines/test_optimizers.*own_formulas",
        "tf-(?!KerasClipping).*",
        "parity_check/test_check has the same formulas in the reference",
    ),
    Wide(
        "tests/engines/test_networks.*bugs_of_transformers_fail",
        "(?!NoMask).*-torch",
        "parity_check/test_check has the same bugs in the reference: the check does not know the engine",
    ),
    Wide("tests/engines/test_forward_pass.*transformers", "tf", "torch; tf trains these layers in test_networks"),
    Wide("tests/test_examples.*study_files", "flux_tutorial.*", "small_vgg"),
)

_COMPILED = [(re.compile(rule.test), re.compile(rule.case)) for rule in RULES]


def wide_rule(node: str, case: str) -> Wide | None:
    """Return the rule by which a test is a wide one; `case` is the ID of its parameters, joined by "-"."""
    parts = (case, *case.split("-"))
    for rule, (test, pattern) in zip(RULES, _COMPILED, strict=True):
        if test.match(node) and any(map(pattern.fullmatch, parts)):
            return rule
    return None


@functools.cache
def ring(node: str) -> str:
    """Return the ring of a test outside the wide one."""
    return next(name for name, pattern in RINGS.items() if re.match(f"tests/({pattern})", node))


def mark_rings(items: Iterable[pytest.Item]) -> None:
    """Mark each test with its ring, and those of the wide ring with that as well."""
    for item in items:
        item.add_marker(ring(item.nodeid))
        parameters = getattr(item, "callspec", None)
        if parameters and wide_rule(item.nodeid, parameters.id):
            item.add_marker(pytest.mark.wide)
