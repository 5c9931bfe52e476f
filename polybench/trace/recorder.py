"""`polybench.record`: writes losses, gradients, weights and batches of a user's own training to a trace file."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any

import numpy as np

from polybench.errors import BadInput
from polybench.schema.trace import TRACE_SCHEMA, StepRecord, TensorKind, TraceHeader
from polybench.trace.file import TraceWriter
from polybench.trace.frameworks import Named, find_source, named_tensors, to_numpy

DEFAULT_STEPS = (0, 1, 2, 10)
_STATE: tuple[TensorKind, ...] = ("weight", "statistic", "optimizer")


class Recorder:
    """Records chosen steps of a training; see `record`. Use it as a context, which closes the file."""

    def __init__(
        self,
        file: str | Path,
        model: Any,
        optimizer: Any,
        statistics: Any,
        steps: Iterable[int],
        settings: Mapping[str, Any],
    ) -> None:
        self._source = find_source(model, optimizer)
        self._due = sorted({*steps})
        if not self._due or any(not isinstance(step, int) or step < 0 for step in self._due):
            raise BadInput(f"steps={self._due}: expected step numbers from 0 on, such as (0, 1, 2, 10)")
        header = {"optimizer": {}} | self._source.header()
        header |= {"schema": TRACE_SCHEMA, "steps": self._due, "optimizer": {**header["optimizer"], **settings}}
        self._writer = TraceWriter(Path(file), TraceHeader(**header))
        self._step = 0
        self._dtypes: dict[str, str] = {}
        try:
            self._write_state(0, {"statistic": statistics})
        except BaseException:
            self._writer.discard()
            raise

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._writer.close()

    def step(
        self,
        *,
        loss: Any,
        batch: Any = None,
        gradients: Any = None,
        weights: Any = None,
        statistics: Any = None,
        optimizer_state: Any = None,
    ) -> None:
        """Record the step that has just ended: call it after every update of the weights.

        It returns at once if neither this step nor the next one is recorded.

        Args:
            loss: of the batch, a scalar of the framework.
            batch: inputs and labels, as the model got them.
            gradients: in Keras a list in the order of `model.trainable_variables`, in JAX a tree; PyTorch has them.
            weights, statistics, optimizer_state: in JAX, trees after the update.
        """
        step = self._step
        self._step += 1
        is_due, is_next_due = step in self._due, step + 1 in self._due
        if not is_due and not is_next_due:
            return
        start = perf_counter()
        if is_due:
            sha256 = self._write(step, "batch", named_tensors(batch, "batch"))
            self._write(step, "gradient", self._gradients(gradients))
        self._write_state(step + 1, {"weight": weights, "statistic": statistics, "optimizer": optimizer_state})
        if is_due:
            value = float(to_numpy(loss).values)
            seconds = perf_counter() - start
            record = StepRecord(value if math.isfinite(value) else None, sha256, seconds, self._dtypes)
            self._writer.finish_step(step, record)

    def _gradients(self, given: Any) -> Named:
        """Name the gradients of a list by the weights in their order."""
        if not isinstance(given, list | tuple) or hasattr(given, "_fields"):
            return self._source.tensors("gradient") if given is None else named_tensors(given)
        names = [name for name, _ in self._source.tensors("weight")]
        if len(given) != len(names):
            raise BadInput(f"gradients has {len(given)} tensors: expected one for each of the {len(names)} weights")
        return ((name, to_numpy(one)) for name, one in zip(names, given, strict=True) if one is not None)

    def _write_state(self, step: int, given: Mapping[TensorKind, Any]) -> None:
        """Write what is before step `step`; tensors that the user did not give are the framework's."""
        for kind in _STATE:
            tree = given.get(kind)
            self._write(step, kind, self._source.tensors(kind) if tree is None else named_tensors(tree))

    def _write(self, step: int, kind: TensorKind, tensors: Named) -> str:
        """Write tensors one by one; return the SHA-256 of their values."""
        sha256 = hashlib.sha256()
        for name, (values, dtype) in tensors:
            self._writer.add_tensor(step, kind, name, values)
            sha256.update(np.ascontiguousarray(values).tobytes())
            if dtype != values.dtype.name:
                self._dtypes[f"{kind}/{name}"] = dtype
        return sha256.hexdigest()


def record(
    file: str | Path,
    *,
    model: Any,
    optimizer: Any = None,
    statistics: Any = None,
    steps: Iterable[int] = DEFAULT_STEPS,
    settings: Mapping[str, Any] | None = None,
) -> Recorder:
    """Record a training, for `polybench trace diff`:

        with polybench.record("torch.trace", model=model, optimizer=optimizer) as trace:
            for batch in batches:
                loss = train_step(*batch)
                trace.step(loss=loss, batch=batch)

    Memory holds one tensor at a time. Steps that are not recorded cost a comparison of two numbers.

    Args:
        file: the trace to write. It appears when the context ends; until then, its name ends with `.partial`.
        model: a `torch.nn.Module`, a Keras model or, for JAX, the tree of initial weights.
        optimizer: of PyTorch or Keras, for its settings and state.
        statistics: initial running statistics, a tree; PyTorch and Keras have them.
        steps: numbers of the recorded steps, counted from 0.
        settings: of an optimizer that has none of its own (optax): {"name": "adamw", "learning_rate": 0.001, ...}.

    Raises:
        BadInput: the file cannot be written, or the model is of none of these kinds.
    """
    return Recorder(file, model, optimizer, statistics, steps, settings or {})
