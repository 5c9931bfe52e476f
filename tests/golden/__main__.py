"""Write the golden document."""

from __future__ import annotations

from polybench.schema.study import to_json
from tests.golden import FILE, measure

FILE.write_bytes(to_json(measure()))
