"""Compiles training steps of JAX for a GPU that is not there: `... compile_for_card CARD NETWORK...`.

Needs JAX's CUDA plugin, which contains XLA's compiler for GPUs, but no driver. Prints a JSON record per network and
precision.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from polybench.engines.jax.engine import JaxEngine
from polybench.engines.job import Job
from polybench.networks import find_model
from polybench.networks.initial_weights import initial_weights
from polybench.schema.options import Workload

CARDS = {
    # compute capability, multiprocessors, bytes of shared memory per block and per multiprocessor, of L2, of memory,
    # bytes per second, GHz
    "h100": ((9, 0), 132, 232448, 233472, 52428800, 84942979072, 3352320000000, 1.98),
    "a100": ((8, 0), 108, 166912, 167936, 41943040, 85100068864, 2039040000000, 1.41),
}
"""NVIDIA's H100 SXM and A100 SXM with 80 GB."""

PRODUCT = re.compile(r"^.*(?: dot\(|\$conv|\$gemm|\$lt\$matmul).*$", re.MULTILINE)
"""A line of XLA's program with a product: of a Triton kernel, of cuDNN or of cuBLAS."""


def target(card: str) -> str:
    """Return XLA's description of a card (`GpuTargetConfigProto`)."""
    (major, minor), cores, block, core, cache, memory, bandwidth, clock = CARDS[card]
    return f"""gpu_device_info {{
        cuda_compute_capability {{ major: {major} minor: {minor} }} core_count: {cores} threads_per_warp: 32
        threads_per_block_limit: 1024 threads_per_core_limit: 2048 fpus_per_core: {128 if major == 9 else 64}
        shared_memory_per_block: 49152 shared_memory_per_block_optin: {block} shared_memory_per_core: {core}
        registers_per_core_limit: 65536 registers_per_block_limit: 65536 l2_cache_size: {cache}
        block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
        device_memory_size: {memory} memory_bandwidth: {bandwidth} clock_rate_ghz: {clock}
        runtime_version: "12.9.0" driver_version: "12.9.0" dnn_version: "9.10.0" }}
        platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 10 }} device_description_str: "{card}" """


def compile_step(name: str, precision: Any, sharding: Any) -> dict[str, Any]:
    """Compile the engine's own step at the network's batch size, and read the program that XLA made of it."""
    model = find_model(name)
    engine: Any = JaxEngine()
    workload = Workload(name, "noise", model.batch_size, model.optimizer, precision, 2)
    engine.build(Job(model, workload, "cpu", "float32"), initial_weights(model, 0))

    def on_card(shape: Any, dtype: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    state = jax.tree.map(lambda array: on_card(array.shape, array.dtype), engine._state)
    images = on_card((model.batch_size, *model.input_shape), np.int32 if model.vocabulary_size else np.float32)
    labels = on_card((model.batch_size, *model.label_shape), np.int32)
    compiled = engine._program.update.trace(state, images, labels).lower(lowering_platforms=("cuda",)).compile()
    text, plan = compiled.as_text(), compiled.memory_analysis()
    return {
        "network": name,
        "precision": precision,
        "calls": Counter(re.findall(r'custom_call_target="([^"]+)"', text)),
        "products": Counter(map(_precision, PRODUCT.findall(text))),
        "types": sorted(set(re.findall(r"\b(f64|f32|bf16|f16)\[", text))),
        "state_bytes": sum(array.nbytes for array in jax.tree.leaves(engine._state)),
        "reused_bytes": plan.alias_size_in_bytes,
        "temporary_bytes": plan.temp_size_in_bytes,
    }


def _precision(product: str) -> str:
    """Return the precision of a product's operands; XLA does not print its default, which is TF32 on these cards."""
    found = re.search(r'operand_precision[=":{\[]+(\w+)', product)
    return found[1].lower() if found else "default"


if __name__ == "__main__":
    card, *networks = sys.argv[1:]
    (device, *_) = topologies.get_topology_desc(platform="cuda", target_config=target(card), topology="1x1x1").devices
    for network in networks:
        for precision in ("fp32", "tf32", "bf16"):
            print(json.dumps(compile_step(network, precision, SingleDeviceSharding(device))), flush=True)
