"""Python environments of a study, each resolved once."""

from __future__ import annotations

from pathlib import Path

from polybench.errors import EngineUnavailable
from polybench.planning.environments import EnvironmentSpec, resolve_environment
from polybench.planning.plan import Plan, engine_spec
from polybench.protocol.interpreter import OWN_INTERPRETER, Interpreter, resolve_interpreter
from polybench.schema.options import Configuration


class Environments:
    """Python environments and interpreters of a plan's configurations.

    Args:
        plan: with the environments.
        folder: for links to bundled packages; it must outlive the workers.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        self._interpreters: dict[str, Interpreter | EngineUnavailable] = {}

    def resolve(self, configuration: Configuration) -> EnvironmentSpec:
        """Return the environment of a configuration."""
        return resolve_environment(configuration, engine_spec(configuration), self._plan.study.env)

    def interpreter(self, configuration: Configuration) -> Interpreter:
        """Return the interpreter of a configuration; raises EngineUnavailable if it does not work."""
        python = self.resolve(configuration).python
        if python is None:
            return OWN_INTERPRETER
        if python not in self._interpreters:
            try:
                self._interpreters[python] = resolve_interpreter(python, self._folder / str(len(self._interpreters)))
            except EngineUnavailable as error:
                self._interpreters[python] = error
        resolved = self._interpreters[python]
        if isinstance(resolved, EngineUnavailable):
            raise resolved
        return resolved
