"""The program of Lux as text: what differs from Flux's, and between its uses."""

from __future__ import annotations

import difflib
import re

import msgspec
import pytest

from polybench.engines.flux.lux.emitter import emit, emit_network, emit_training
from polybench.errors import EngineUnavailable
from polybench.networks import find_model
from polybench.networks.layers import Attention, BatchNorm, Conv, Dense, Embedding, Flatten, ReLU, Residual
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from tests.engines.emitted_programs import changes, job, small
from tests.engines.flux.test_emitter import forward_pass
from tests.example_networks import EVERYTHING, FEATURES, PADDED, TEXT

SCHEDULE = {"lr_schedule": ((3, 0.2),)}


def of(name: str) -> str:
    """Return the program of a named network."""
    return emit(job(find_model(name)))


def test_a_program_has_only_what_its_network_needs() -> None:
    text = emit(job())
    assert re.findall("^using (.*)", text, re.MULTILINE) == ["Lux", "OneHotArrays", "Optimisers", "Random", "Zygote"]
    functions = re.findall(r"^(?:function )?(\w+!?)\(", text, re.MULTILINE)
    named = ["network", "tensors", "conv_tensors", "kernel", "dense_tensors"]
    assert functions == [*named, "setup", "reset!", "weights", "make_train_state", "load", "train_step!"]
    assert "\n    Conv((5, 5), 3 => 16, relu),\n    MaxPool((2, 2)),\n" in text
    assert "    FlattenLayer(),\n    Dense(200 => 120),\n" in text


def test_repeated_blocks_are_one_function_and_a_comprehension() -> None:
    text = of("resnet32")
    assert text.count("Conv((") == 6
    assert "    Chain(projection_block(16, 32), [residual_block(32) for _ in 1:4]...),\n" in text
    call = 'residual_block_tensors("stage2.block$n", ps.layer_4[n], st.layer_4[n])'
    assert f"        [\n            {call}\n                for n in 2:5\n        ]...,\n" in text
    assert '        projection_block_tensors("stage2.block1", ps.layer_4.layer_1, st.layer_4.layer_1),\n' in text
    assert '    conv_tensors("$name.conv1", ps.layer_1.layer_1),\n' in text  # a skip connection is no level


def test_the_step_is_that_of_lux() -> None:
    call = (
        "Training.single_train_step!(\n        AutoZygote(), compute_loss, (inputs, targets), state.train_state,\n    )"
    )
    assert f"    _, loss, _, train_state = {call}\n    state.train_state = train_state\n" in emit(job())
    clipped = emit(job(optimizer=Optimizer("sgd", 0.5, gradient_clip=0.7)))
    assert "    gradients, loss, _, train_state = Training.compute_gradients(\n" in clipped
    assert "Training.apply_gradients!(\n        train_state,\n        clip(train_state.optimizer_state, gr" in clipped
    assert "single_train_step!" not in clipped


def test_the_loss_is_that_of_lux_unless_its_smoothing_counts_positions() -> None:
    loss = "const compute_loss = CrossEntropyLoss(; logits = Val(true)"
    assert f"{loss})\n" in emit(job())
    smoothed = [msgspec.structs.replace(model, label_smoothing=0.1) for model in (find_model("lenet"), TEXT)]
    assert f"{loss}, label_smoothing = 0.1)\n" in emit(job(smoothed[0]))
    assert f"DTYPE(0.9) .* targets .+ DTYPE({0.1 / 11})\n" in emit(job(smoothed[1]))


def test_velocities_follow_the_rate_and_only_matrices_decay() -> None:
    text = emit(job(optimizer=Optimizer(weight_decay=0.1, **SCHEDULE)))
    assert "using Lux.Functors: fmap\n" in text
    assert "optimizer = state.train_state.optimizer_state\n    Optimisers.adjust!(optimizer, rate)\n" in text
    assert "        last(leaf.state) .*= rate / state.rate\n" in text
    assert "Optimisers.adjust!(leaf; lambda = 0.0)" in emit(job(optimizer=Optimizer("adamw", weight_decay=0.1)))
    made = "    return Training.TrainState(model, parameters, states, Descent(rate))\n"
    assert made in emit(job(optimizer=Optimizer("sgd", **SCHEDULE)))


def test_layers_share_arrays_of_the_parameters() -> None:
    text = of("char-gpt")
    call = 'share_parameters(\n        parameters, (("layer_1.weight", "layer_5.weight"),),\n    )'
    assert f"    parameters = Lux.Experimental.{call}\n" in text
    assert "    Unembedding(128, 65),\n" in text
    layers = [Dense("first", 4, 4), *(Dense(f"b{number}.x", 4, 4, bias=False, tied="first") for number in range(2))]
    model = msgspec.structs.replace(FEATURES, layers=(Residual((layers[0], Dense("second", 4, 4))), *layers[1:]))
    text = emit(job(model))
    assert '(("layer_1.layer_1.weight", "layer_2.weight", "layer_3.weight"),)' in text.replace("\n        ", "")
    assert "    Dense(4 => 4; use_bias = false),\n" in text
    assert '"b0.x"' not in text


def test_a_function_outside_of_a_chain_is_a_layer() -> None:
    text = emit(job(small(Residual((ReLU(),), ()), Residual(()), Flatten(), Dense("dense", 48, 10))))
    assert "    SkipConnection(WrappedFunction(x -> relu.(x)), +),\n    SkipConnection(NoOpLayer(), +),\n" in text


def test_padding_has_the_sides_of_the_width_first() -> None:
    text = emit(job(PADDED))
    for code in (
        "Conv((3, 3), 3 => 4, relu; stride = 2, pad = (1, 1, 0, 1)),",
        "Conv((2, 2), 4 => 4; pad = (1, 0, 0, 1), groups = 4),",
        "x -> pad_constant(x, (0, 1, 1, 0), DTYPE(-Inf); dims = (1, 2)),\n    MaxPool((2, 2); stride = 1),",
        "x -> pad_constant(x, (0, 1, 1, 0), DTYPE(0); dims = (1, 2)),\n    MeanPool((2, 2); stride = 1),",
        "ImageMean(MeanPool((3, 3); stride = 1, pad = 1)),",
    ):
        assert code in text


def test_constants_of_norms_are_numbers_of_the_networks_type() -> None:
    text = emit(job(EVERYTHING))
    parameters = "channels, activation = identity; epsilon = 1.0e-5, momentum = 0.1"
    assert f"batch_norm({parameters}) = BatchNorm(\n    channels, activation; epsilon, momentum,\n)\n" in text
    assert "    batch_norm(4, relu; epsilon = 0.001, momentum = 0.3),\n" in text
    one = emit(job(small(Conv("conv", 3, 4, 1), BatchNorm("norm", 4, 1e-3), Flatten(), Dense("dense", 64, 10))))
    assert "batch_norm(channels) = BatchNorm(channels; epsilon = 0.001, momentum = 0.1)\n" in one


def test_attention_has_the_biases_and_masks_of_its_network() -> None:
    def made(*layers: Attention) -> str:
        model: Model = msgspec.structs.replace(TEXT, layers=(Embedding("embedding", 11, 8), *layers, Dense("d", 8, 11)))
        text = " ".join(emit(job(model)).split())
        return text[text.index("self_attention(") : text.index("first", text.index("= Chain"))]

    causal, plain = Attention("a", 8, 2, causal=True, bias=False), Attention("b", 8, 2)
    assert "MultiHeadAttention(features; nheads = heads, is_causal = true)" in made(causal)
    assert "(features; nheads = heads, dense_kwargs = (; use_bias = true))" in made(plain)
    both = made(causal, plain)
    assert both.startswith("self_attention(features, heads; causal = false, use_bias = true) = ")
    assert "dense_kwargs = (; use_bias), is_causal = causal, )" in both


def test_the_checked_program_differs_from_the_timed_one_in_type_and_masks_only() -> None:
    assert changes(emit(job()), emit(job(dtype="float64"))) == ["- const DTYPE = Float32", "+ const DTYPE = Float64"]
    model = find_model("mnist-mlp")
    removed = [line for line in changes(emit(job(model)), emit(job(model, dropout="given"))) if line[0] == "-"]
    assert removed == [*["-     Dropout(0.2),"] * 2, "- function train_step!(state, (inputs, targets))"]


def test_the_exported_program_is_the_timed_one_and_a_main_part() -> None:
    for name in ("lenet", "char-gpt"):
        timed, exported = of(name).splitlines(), emit_training(job(find_model(name)), 7).splitlines()
        assert [line for line in difflib.ndiff(timed, exported) if line.startswith("- ")] == []
        assert len(exported) - len(timed) <= 60
        assert "# Needs the packages Lux, NPZ, OneHotArrays, Optimisers and Zygote." in exported
    assert emit_network(job()).endswith("\n(; model, parameters, states) = state.train_state\n")


def test_a_forward_pass_is_that_of_inference() -> None:
    text = emit(forward_pass(EVERYTHING))
    assert "    state = State(model, parameters, Lux.testmode(states))\n" in text
    assert "tensors(state)\n" in text
    for word in ("Zygote", "Optimisers", "TrainState", "train_step!"):
        assert word not in text


def test_what_lux_lacks_is_refused() -> None:
    with pytest.raises(EngineUnavailable, match=r"Lux.jl has no lstm"):
        emit(job(FEATURES))


def test_names_of_layers_are_only_in_literals() -> None:
    blocks = [Residual((Conv(f'"$(exit()).b{number}.c$x', 3, 3, 1),)) for number in range(1, 3)]
    text = emit(job(small(*blocks, Flatten(), Dense("$(exit())\\", 48, 10))))
    assert r'b_block_tensors("\"\u0024(exit()).b$n", ps.layer_1[n]) for n in 1:2' in text
    assert r'conv_tensors("$name.c\u0024x", ps)' in text
    assert r'dense_tensors("\u0024(exit())\\", ps.layer_3)' in text
