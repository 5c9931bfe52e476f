"""Write the golden document."""

from __future__ import annotations

from polybench.core.document.study import to_json
from tests.golden import FILE, measure

FILE.write_bytes(to_json(measure()))
