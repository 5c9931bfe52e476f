"""Write the golden document and reports."""

from __future__ import annotations

import json

from polybench.schema.study import to_json
from tests.golden import FILE, measure
from tests.golden.reports import FILE as REPORTS
from tests.golden.reports import SCENARIOS, report

FILE.write_bytes(to_json(measure()))
REPORTS.write_text(json.dumps({name: report(name) for name in SCENARIOS}, indent=1, ensure_ascii=False) + "\n", "utf-8")
