"""The rules of the wide ring: which cases leave the gate, and which stand for them."""

from __future__ import annotations

import pytest

from tests.rings import ring, wide_rule

NETWORKS = "tests/engines/test_networks.py"
PARITY = "tests/engines/test_parity.py"
SMOKE = "test_a_network_with_every_layer_passes_the_parity_check"


@pytest.mark.parametrize(
    ("test", "case", "is_wide"),
    [
        (f"{NETWORKS}::{SMOKE}", "lux", True),
        (
            "tests/engines/test_parity.py::test_float64_losses_gradients_and_weights_equal_the_reference",
            "step3-lux",
            False,
        ),
        (f"{NETWORKS}::test_published_networks_pass_the_parity_check", "lenet-lux", True),
        (f"{NETWORKS}::{SMOKE}", "jax", False),
        (f"{NETWORKS}::{SMOKE}", "keras+torch", False),
        (f"{NETWORKS}::{SMOKE}", "keras+jax", True),
        (f"{NETWORKS}::{SMOKE}", "torch+channels_last", True),
        (f"{NETWORKS}::test_a_network_with_every_sequence_layer_passes_the_parity_check", "keras+torch", True),
        (f"{PARITY}::test_a_snapshot_changes_no_state", "flux", False),
        (f"{PARITY}::test_a_snapshot_changes_no_state", "flux+gc_off", True),
        (f"{PARITY}::test_a_snapshot_changes_no_state", "torch+channels_last", False),
        (f"{PARITY}::test_a_snapshot_changes_no_state", "torch+compile", True),
        (f"{PARITY}::test_a_snapshot_changes_no_state", "jax", True),
        (f"{PARITY}::test_a_snapshot_changes_no_state", "keras", True),
        ("tests/engines/keras/test_engine.py::test_the_step_is_traced_once", "keras", False),
        ("tests/engines/test_injected_bugs.py::test_an_injected_bug_fails_for_its_reason", "FewImages-tf", True),
        ("tests/engines/test_injected_bugs.py::test_an_injected_bug_fails_for_its_reason", "FewImages-torch", False),
        ("tests/engines/test_optimizers.py::test_every_optimizer_computes_the_canonical_formula", "flux-sgd", True),
        ("tests/engines/test_optimizers.py::test_every_optimizer_computes_the_canonical_formula", "flux-adamw", False),
        (
            "tests/engines/test_optimizers.py::test_every_optimizer_computes_the_canonical_formula",
            "keras+torch-adamw",
            False,
        ),
        ("tests/scripts/test_plain.py::test_a_script_trains_like_the_engine", "lenet-flux", False),
        ("tests/scripts/test_plain.py::test_a_script_trains_like_the_engine", "dlframeworks-cnn-torch", True),
        ("tests/scripts/test_plain.py::test_a_script_trains_like_the_engine", "lenet-torch+compile", True),
        ("tests/scripts/test_plain.py::test_a_script_trains_like_the_engine", "lenet-keras", True),
        ("tests/scripts/test_plain.py::test_a_script_for_tokens_trains_like_the_engine", "jax", True),
        ("tests/scripts/test_source_text.py::test_hostile_text_stays_in_literals", "lux", False),
    ],
)
def test_a_case_is_wide_if_another_stands_for_it(test: str, case: str, is_wide: bool) -> None:
    assert (wide_rule(f"{test}[{case}]", case) is not None) == is_wide


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (f"{PARITY}::test_a_snapshot_changes_no_state[flux]", "julia"),
        (f"{PARITY}::test_a_snapshot_changes_no_state[torch]", "engines"),
        ("tests/engines/flux/test_julia_package.py::test_julia_package", "julia"),
        ("tests/engines/flux/test_julia_files.py::test_bounds", "engines"),
        ("tests/engines/flux/julia/test_discovery.py::test_found", "engines"),
        ("tests/importer/test_flux.py::test_a_chain_is_proven", "julia"),
        ("tests/importer/test_keras.py::test_a_model", "extras"),
        ("tests/runner/test_study.py::test_rounds", "process"),
        ("tests/results/test_known_truth.py::test_intervals", "simulated"),
        ("tests/render/test_markup.py::test_a_pipe", "pure"),
    ],
)
def test_every_test_is_in_the_first_ring_that_matches(test: str, expected: str) -> None:
    assert ring(test) == expected
