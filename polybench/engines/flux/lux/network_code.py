"""Writes a network as a Lux `Chain`, and its arrays by name as views in the canonical layout.

Chains are those of `engines/flux/network_code.py`. This module does not start Julia.
"""

from __future__ import annotations

from collections.abc import Sequence

from polybench.engines.flux.chain import Entry
from polybench.engines.flux.julia_text import WIDTH
from polybench.engines.flux.lux.layer_code import LuxLayerCode
from polybench.engines.flux.network_code import NetworkCode
from polybench.networks import layers as spec

_NAME = 16
"""Characters of a layer's name for which a line is wide enough."""


class LuxNetworkCode(NetworkCode):
    """The functions of a network, as `NetworkCode`; the state of a layer is an argument if there are batch norms."""

    layer_code = LuxLayerCode

    def ties(self) -> list[tuple[str, str]]:
        """Return the paths of arrays that two layers share, such as `layer_1.weight`."""
        entries = [(one.layer, f"{one.path.removeprefix('.')}.weight") for one in self._code.below(self._network)]
        paths = {layer.name: path for layer, path in entries if isinstance(layer, spec.Named)}
        return [(paths[tied], path) for one, path in entries if (tied := getattr(one, "tied", None))]

    def network_tensors(self, entries: Sequence[Entry]) -> str:
        states = ["    st = train_state.states"] if self._has_states else []
        body = self._joined(entries, "    return ")
        return "\n".join(["function tensors(train_state)", "    ps = train_state.parameters", *states, *body, "end"])

    def block_tensors(self, function: str, entries: Sequence[Entry]) -> str:
        arguments = "name, ps, st" if self._has_states else "name, ps"
        return "\n".join(self._joined(entries, f"{function}_tensors({arguments}) = "))

    def is_shared(self, layer: spec.Layer) -> bool:  # noqa: ARG002 - layers share arrays of the parameters
        return False

    @property
    def _has_states(self) -> bool:
        return any(layer.state_shapes() for layer in self._code.layers)

    def _joined(self, entries: Sequence[Entry], start: str) -> list[str]:
        """Return the lines of an expression of all arrays."""
        calls = [one for one in entries if not getattr(one.layer, "tied", None)]
        if not calls:
            return [f"{start}[]"]
        if len(calls) == 1 and calls[0].end == ")":
            return self._lines(start, calls[0], "")
        indent = start[: len(start) - len(start.lstrip())]
        arguments = [line for call in calls for line in self._lines(f"{indent}    ", call, ",")]
        return [f"{start}vcat(", *arguments, f"{indent})"]

    def _lines(self, start: str, entry: Entry, end: str) -> list[str]:
        """Return the lines of the call of the arrays of a layer or block, or of several blocks.

        How it is broken does not depend on the name.
        """
        has_states = self._has_states and (entry.layer is None or bool(entry.layer.state_shapes()))
        paths = f"ps{entry.path}{f', st{entry.path}' if has_states else ''}"
        function, _, name = entry.start.removesuffix(", ").partition("(")
        if len(f"{start}{entry.start}{paths}{entry.end}{end}") - len(name) + _NAME <= WIDTH:
            return [f"{start}{entry.start}{paths}{entry.end}{end}"]
        indent = start[: len(start) - len(start.lstrip())]
        if entry.end == ")":
            return [f"{start}{function}(", f"{indent}    {name}, {paths},", f"{indent}){end}"]
        call = f"{entry.start.removeprefix('[')}{paths})"
        numbers = entry.end.removeprefix(") ").removesuffix("]...")
        return [f"{start}[", f"{indent}    {call}", f"{indent}        {numbers}", f"{indent}]...{end}"]
