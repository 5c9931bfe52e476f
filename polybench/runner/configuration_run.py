"""A configuration that this program measures: what its log says, and what its workers need."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from polybench.engines.job import EngineInfo
from polybench.engines.source import Source
from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.log import EngineLoaded, Failed, Log, OfConfiguration, ParityChecked, Warned
from polybench.planning.plan import engine_spec
from polybench.protocol.calls import Loaded
from polybench.protocol.interpreter import OWN_INTERPRETER, Interpreter
from polybench.protocol.loaded_code import Code, changed_names, describe_changes, fingerprint
from polybench.results.measured import MeasuredConfiguration
from polybench.schema.parity import UNCHECKED, ParityCheck
from polybench.schema.result import Program

NO_CODE: Code = {}


class CachedParity(NamedTuple):
    """A parity check of an earlier study, and what its worker had loaded."""

    worker_info: Loaded
    parity: ParityCheck
    later_code: Code


@dataclass
class ConfigurationRun(MeasuredConfiguration):
    """A configuration and what this program has recorded of it.

    Attributes:
        log: gets the events that `record` applies; None for a configuration that is only looked up.
        interpreter: of its workers.
        source: the user's program that they run, if it is one.
        cached_check: a check that counts as soon as a worker has loaded the same code.
        code: the code that its last worker had loaded before its first step, see `protocol.loaded_code`.
        later_code: files that the checked worker had loaded at the end of the parity check, in addition.
    """

    log: Log | None = None
    interpreter: Interpreter = OWN_INTERPRETER
    source: Source | None = None
    cached_check: CachedParity | None = None
    code: dict[str, str] = field(default_factory=dict)
    later_code: dict[str, str] = field(default_factory=dict)

    @property
    def is_unchecked(self) -> bool:
        """True if it has neither a parity check nor one of an earlier study."""
        return self.parity == UNCHECKED and self.cached_check is None

    def record(self, event: OfConfiguration | Warned) -> None:
        """Add an event to the log, and apply it."""
        if self.log is not None:
            self.log.add(event)
        self.apply(event)

    def record_loaded(self, loaded: Loaded) -> None:
        """Record what a worker has loaded, and a cached parity check of the same code."""
        name, cached = self.configuration.name, self.cached_check
        if changed := changed_names(self.code, loaded.code) if self.code else []:
            text = f"between two processes of this study, {describe_changes(changed)}"
            self.record(Warned(configuration=name, text=text, names=True))
        if (self.engine_info, self.code_sha256) != (loaded.info, fingerprint(loaded.code)):
            version = self.interpreter.version
            python = None if version is None else (version, self.interpreter.executable)
            self._record_code(loaded.info, python, loaded.code)
        self.cached_check = None
        if cached is not None and cached.worker_info == loaded:
            self.record_parity(cached.parity, cached.later_code, cached=True)

    def record_program(self, text: str) -> None:
        """Record the program that a worker runs; raises ConfigurationFailed if an earlier worker ran another one."""
        if self.program is not None and self.program.text != text:
            raise ConfigurationFailed("its program is not the one that was timed before: start the study again")
        if text and self.program is None:
            assert self.engine_info is not None
            self._record_engine(self.engine_info, self.python, self.code_sha256, Program.of(text))

    def record_parity(self, parity: ParityCheck, later_code: Code = NO_CODE, *, cached: bool = False) -> None:
        """Record a parity check, and which code the checked worker had loaded after its first step."""
        name, sha256 = self.configuration.name, fingerprint(later_code)
        self.record(ParityChecked(configuration=name, parity=parity, cached=cached, later_code_sha256=sha256))
        self.later_code = dict(later_code)
        if self.log is not None:
            self.log.save_content(sha256, later_code)

    def _record_code(self, info: EngineInfo, python: tuple[str, str] | None, code: Code) -> None:
        sha256 = fingerprint(code)
        self._record_engine(info, python, sha256)
        self.code = dict(code)
        if self.log is not None:
            self.log.save_content(sha256, code)

    def _record_engine(
        self, info: EngineInfo, python: tuple[str, str] | None, code_sha256: str | None, program: Program | None = None
    ) -> None:
        self.record(
            EngineLoaded(
                configuration=self.configuration.name,
                versions=info.versions,
                build=info.build,
                devices=[*info.devices],
                python=python,
                program=program,
                code_sha256=code_sha256,
            )
        )

    def copy_check(self, first: ConfigurationRun) -> None:
        """Record what was found out about an equal configuration before anything was measured."""
        self.cached_check = first.cached_check
        if first.engine_info is not None:
            self._record_code(first.engine_info, first.python, first.code)
        if first.parity != UNCHECKED:
            self.record_parity(first.parity, first.later_code)
        if first.status in ("unavailable", "failed"):
            self._fail(first.status, first.reason, first.hint, first.log_path)

    def mark_unavailable(self, missing: EngineUnavailable) -> None:
        """Record that this machine lacks the engine or the device."""
        hint = self.interpreter.adapt_hint(missing.hint, engine_spec(self.configuration))
        self._fail("unavailable", missing.reason, hint)

    def mark_failed(self, error: Exception, log: Path | None = None) -> None:
        """Record the failure; measurements so far remain."""
        self.cached_check = None  # no worker has confirmed that the engine is unchanged
        if isinstance(error, EngineUnavailable):
            self.mark_unavailable(error)
        else:
            self._fail("failed", str(error), "see the worker's log for details" if log else None, log)

    def _fail(
        self, status: Literal["unavailable", "failed"], reason: str | None, hint: str | None, log: Path | None = None
    ) -> None:
        path = str(log) if log else None
        name = self.configuration.name
        self.record(Failed(configuration=name, status=status, reason=reason, hint=hint, log_path=path))

    def warn(self, text: str) -> None:
        """Record a warning."""
        self.record(Warned(configuration=self.configuration.name, text=text, names=True))
