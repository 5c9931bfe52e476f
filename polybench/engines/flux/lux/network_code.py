"""Writes a network as a Lux `Chain`, and its arrays by name as views in the canonical layout.

Chains and most layers are those of `engines/flux/network_code.py`. This module does not start Julia.
ADD A LAYER: its case in `layer` if Lux's constructor differs, its arrays in `ARRAYS`, and what Lux lacks in
`layer_code`.
"""

from __future__ import annotations

from collections.abc import Sequence

from polybench.engines.flux.julia_text import WIDTH, Call
from polybench.engines.flux.lux.layer_code import ARRAYS, LuxLayerCode
from polybench.engines.flux.network_code import Element, Entry, NetworkCode, Scope
from polybench.engines.shared.frameworks import unsupported_layer
from polybench.networks import layers as spec

_NAME = 16
"""Characters of a layer's name for which a line is wide enough."""


class LuxNetworkCode(NetworkCode):
    """The functions of a network, as `NetworkCode`; the state of a layer is an argument if there are batch norms."""

    framework = "Lux.jl"
    layer_code = LuxLayerCode
    flatten, identity, attention = "FlattenLayer()", "NoOpLayer()", "self_attention"
    bias = "use_bias"
    skipped = ""
    dropouts = "dropouts(state.train_state.model)"

    def ties(self) -> list[tuple[str, str]]:
        """Return the paths of arrays that two layers share, such as `layer_1.weight`."""
        entries = [(one.layer, f"{one.path.removeprefix('.')}.weight") for one in self._below(self._network)]
        paths = {layer.name: path for layer, path in entries if isinstance(layer, spec.Named)}
        return [(paths[one.tied], path) for one, path in entries if isinstance(one, spec.Dense) and one.tied]

    def network_tensors(self, entries: Sequence[Entry]) -> str:
        states = ["    st = train_state.states"] if self._has_states else []
        body = self._joined(entries, "    return ")
        return "\n".join(["function tensors(train_state)", "    ps = train_state.parameters", *states, *body, "end"])

    def block_tensors(self, function: str, entries: Sequence[Entry]) -> str:
        arguments = "name, ps, st" if self._has_states else "name, ps"
        return "\n".join(self._joined(entries, f"{function}_tensors({arguments}) = "))

    def step(self, index: int) -> str:
        return f".layer_{index}"

    def entry(self, layer: spec.Layer, name: str) -> Entry:
        return Entry("", f"{ARRAYS[type(layer)]}_tensors({name}, ", ")", layer)

    def alone(self, element: Element) -> Element:
        """Wrap a function, which is a layer in a chain only."""
        code = element.code
        if isinstance(code, Call) or (code.endswith(")") and not code.startswith("x -> ")):
            return element
        return element._replace(code=f"WrappedFunction({code})")

    def is_shared(self, layer: spec.Layer) -> bool:  # noqa: ARG002 - layers share arrays of the parameters
        return False

    def layer(self, layer: spec.Layer, activation: str, scope: Scope) -> Sequence[Element]:
        def field(name: str) -> str:
            return scope.field(layer, name)

        def made(function: str, *arguments: str) -> Sequence[Element]:
            assert isinstance(layer, spec.Named)
            return [Element(Call(function, arguments), [self.entry(layer, scope.text(layer.name))])]

        match layer:
            case spec.LSTM():
                raise unsupported_layer(self.framework, layer)
            case spec.Positions():
                return made("Positions", field("features"), field("length"))
            case spec.ClassToken():
                return made("ClassToken", field("features"))
            case spec.Dense(tied=str()):
                if self._code.is_table(layer):
                    return made("Unembedding", str(layer.inputs), str(layer.outputs))
                (element,) = made("Dense", f"{layer.inputs} => {layer.outputs}", *([activation] if activation else []))
                assert isinstance(element.code, Call)
                return [element._replace(code=element.code._replace(options=["use_bias = false"]))]
            case _:
                return super().layer(layer, activation, scope)

    @property
    def _has_states(self) -> bool:
        return bool(self._code.of(spec.BatchNorm))

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
        has_states = self._has_states and isinstance(entry.layer, spec.BatchNorm | None)
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
