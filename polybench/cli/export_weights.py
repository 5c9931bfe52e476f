"""`polybench export --weights`: initial weights and batch order, to reproduce a training by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polybench.cli.output import echo
from polybench.errors import BadInput
from polybench.schema.options import Study


def export_weights(study: Study, steps: int, output: Path) -> None:
    """Write initial weights and the batches of this many steps as .npz, and print their SHA-256."""
    import numpy as np

    from polybench.data.batches import batch_stream, epoch_order, order_sha256
    from polybench.data.disk import atomic_write, check_free_space, exists, is_file
    from polybench.networks import find_model
    from polybench.networks.initial_weights import initial_weights, weights_sha256
    from polybench.planning.shared_files import LARGEST_ORDER, dataset_of
    from polybench.runner.scratch import scratch_folder

    network = find_model(study.model)
    if exists(output) and not is_file(output):
        raise BadInput(f"--output {output}: not a regular file; name another one")
    with scratch_folder() as scratch:
        dataset = dataset_of(study, network, scratch)
    images = len(dataset.labels)
    size = study.batch_size or network.batch_size
    if 8 * steps * size > LARGEST_ORDER:
        raise BadInput(f"--steps {steps}: too many batches of {size}; try --steps {LARGEST_ORDER // (8 * size)}")
    batches = batch_stream(images, size, study.seed, steps)
    tensors = initial_weights(network, study.seed)
    arrays: dict[str, Any] = {**tensors, "batches": batches}
    written = sum(array.nbytes for array in arrays.values())
    # An open file, because NumPy appends .npz to a name.
    with check_free_space(output.parent, written), atomic_write(output.resolve()) as file:
        np.savez(file, **arrays)
    echo(f"{dataset.name}: {dataset.source}; wrote {output}", err=True)
    echo(f"data_sha256 {dataset.sha256}")
    echo(f"weights_sha256 {weights_sha256(tensors)}")
    # `batches_sha256` of saved studies covers the whole first epoch, the other one the batches in the file.
    echo(f"batches_sha256 {order_sha256(epoch_order(images, size, study.seed, epoch=0))}")
    echo(f"written_batches_sha256 {order_sha256(batches)}")
