"""An explanation as text: each pair with its account, then what to do, then what nobody measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import fill

from polybench.core import units
from polybench.core.document.explanation import Account, Entry, ExplanationDocument, Pair, Sentence
from polybench.core.document.study import json_of
from polybench.export import WIDTH
from polybench.export.heading import heading_of
from polybench.export.records import laid_out

FORMATS = ("table", "markdown", "json")

_SHOWN = 8
"""The largest entries of an account; the others are one row, and all are in the JSON."""

_NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=[mµn]?s\b)")
"""What is between them; a line does not end there."""


def render(document: ExplanationDocument, format: str) -> str:
    """Text that ends with a newline; `format` is one of FORMATS."""
    if format == "json":
        return json_of(document).decode()
    workload, _, machine = heading_of(document.settings, document.host, [])
    break_ = "  \n" if format == "markdown" else "\n"
    heading = break_.join([f"study {document.study}", workload, machine])
    return f"{heading}\n\n{render_below(document, format)}"


def render_below(document: ExplanationDocument, format: str) -> str:
    """The same without a heading, for below the study's own table; not for `json`."""
    markdown = format == "markdown"
    blocks = [block for pair in document.pairs for block in _pair(pair, markdown)]
    lists = {
        "What you could do": document.advice,
        "What would tell more": document.missing,
        "Not compared": document.left_out,
    }
    for title, sentences in lists.items():
        if sentences:
            blocks += [_title(title, markdown), _listed(sentences, markdown)]
    return "\n\n".join(blocks) + "\n"


def _pair(pair: Pair, markdown: bool) -> Iterator[str]:
    yield _title(f"{pair.cell} against {pair.against}", markdown)
    yield _listed(pair.sentences, markdown)
    shown = pair.account("layers") or pair.account("batch size")
    if shown is not None:
        yield _account(pair, shown, markdown)


def _title(text: str, markdown: bool) -> str:
    return f"### {text}" if markdown else f"{text}\n{'-' * len(text)}"


def _listed(sentences: Sequence[Sentence], markdown: bool) -> str:
    return "\n".join(line for sentence in sentences for line in _sentence(sentence, markdown))


def _sentence(sentence: Sentence, markdown: bool) -> Iterator[str]:
    """A command is to be copied, so it stays in one piece."""
    text = f"- {sentence.text} [{sentence.figure}]"
    if markdown:
        yield text + (f" `{sentence.command}`" if sentence.command else "")
        return
    glued = _NUMBER_AND_UNIT.sub("\u00a0", text)
    lines = fill(glued, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    yield lines.replace("\u00a0", " ")
    if sentence.command:
        yield f"    {sentence.command}"


def _account(pair: Pair, account: Account, markdown: bool) -> str:
    header, rows = account_rows(pair, account)
    return laid_out(header, rows, left=1, markdown=markdown)


def account_rows(pair: Pair, account: Account) -> tuple[list[str], list[list[str]]]:
    """A header, and rows that add up to the last one."""
    largest = sorted(account.entries, key=lambda entry: -abs(entry.seconds))[:_SHOWN]
    entries = [entry for entry in account.entries if entry in largest]
    rest = [entry for entry in account.entries if entry not in largest]
    rows = [_row(entry.name, entry, account) for entry in entries]
    if rest:
        rows.append(_row(f"{units.plural(len(rest), 'other part')}", _sum(rest), account))
    rows += [_row(f"residue: {entry.name}", entry, account) for entry in account.residue]
    whole = Entry(name="", kind="", seconds=account.seconds, ours=pair.ours, theirs=pair.theirs)
    rows.append(_row("whole step", whole, account))
    return ["part", pair.cell, pair.against, "difference", "share"], rows


def _row(name: str, entry: Entry, account: Account) -> list[str]:
    both = ("" if value is None else units.seconds(value) for value in (entry.ours, entry.theirs))
    share = f"{100 * entry.seconds / account.seconds:.1f}%" if account.seconds else ""
    return [name, *both, units.signed_seconds(entry.seconds), share]


def _sum(entries: Sequence[Entry]) -> Entry:
    ours, theirs = (
        [value for value in values if value is not None]
        for values in zip(*((entry.ours, entry.theirs) for entry in entries), strict=True)
    )
    seconds = sum(entry.seconds for entry in entries)
    return Entry(name="", kind="", seconds=seconds, ours=sum(ours), theirs=sum(theirs))
