"""Values that a shell completes, after `polybench --install-completion`: names and saved studies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import typer

from polybench.engines import ALLOCATOR_VARIANTS, ENGINES
from polybench.errors import BadInput
from polybench.networks import MODELS


def one_of(names: Iterable[str] | Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Complete a single name; without a match, the shell completes files."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in (names() if callable(names) else names) if name.startswith(incomplete)]

    return complete


def several_of(names: Callable[[str], Iterable[str]]) -> Callable[[str], list[str]]:
    """Complete the last of the names between commas, which may depend on its text, except with the others."""

    def complete(incomplete: str) -> list[str]:
        others, comma, last = incomplete.rpartition(",")
        return [
            f"{others}{comma}{name}" for name in names(last) if name.startswith(last) and name not in others.split(",")
        ]

    return complete


model_names = one_of(MODELS.names)


def engine_names(text: str) -> Iterator[str]:
    """Yield the engines, or after a plus the engine of `text` with each variant that it does not have yet."""
    base, plus, _ = text.rpartition("+")
    engine, *variants = base.split("+")
    if plus and engine in ENGINES.names():
        spec = ENGINES.find(engine)
        yield from (f"{base}+{name}" for name in spec.variants | ALLOCATOR_VARIANTS if name not in variants)
    else:
        for name in ENGINES.names():
            if name not in ENGINES or not ENGINES[name].internal:
                yield name
        if text in ENGINES:
            yield from (f"{text}+{name}" for name in ENGINES[text].variants)


def column_names(_: str) -> Iterator[str]:
    """Yield the names and groups of columns."""
    from polybench.schema.metrics import GROUPS, METRICS

    yield from (*METRICS.names(), *GROUPS)


def saved(*kinds: str) -> Callable[[typer.Context, str], list[tuple[str, str]]]:
    """Complete IDs of saved documents, or of some kinds, with their titles or networks, and `last`."""

    def complete(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        from polybench.schema.documents import newest_name

        store = _store(ctx)
        try:
            summaries = *store.summaries(), *store.other_summaries()
            found = [one for one in summaries if not kinds or one.kind in kinds]
        except BadInput:
            return []
        last = dict.fromkeys((newest_name(one.kind), f"the newest {one.kind}") for one in found)
        ids = [(one.file, one.title or one.model) for one in found if one.unreadable_reason is None]
        return [(id, text) for id, text in (*last, *ids) if id.startswith(incomplete)]

    return complete


def unfinished(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete IDs of runs that can be resumed, and `last`."""
    from polybench.runner.checkpoint import CheckpointStore
    from polybench.runner.resume import unfinished_ids

    store = _store(ctx)
    ids = [*unfinished_ids(store), *CheckpointStore(store.folder).ids()]
    return [id for id in (["last", *ids] if ids else []) if id.startswith(incomplete)]


def _store(ctx: typer.Context) -> Any:
    from polybench.storage.store import Store, results_folder

    return Store(results_folder(ctx.params.get("results")))
