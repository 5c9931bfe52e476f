"""Write the golden document, reports and what is printed; with `logs`, record the golden logs again."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from polybench.schema.study import to_json
from tests import conftest  # noqa: F401 - the engine `faulty`
from tests.golden import FILE, logs, measure, printed
from tests.golden.reports import FILE as REPORTS
from tests.golden.reports import SCENARIOS, report

if sys.argv[1:] == ["logs"]:
    logs.FOLDER.mkdir(exist_ok=True)
    for name in logs.STUDIES:
        with tempfile.TemporaryDirectory() as folder:
            logs.record(name, Path(folder))
else:
    FILE.write_bytes(to_json(measure()))
    reports = {name: report(name) for name in SCENARIOS}
    REPORTS.write_text(json.dumps(reports, indent=1, ensure_ascii=False) + "\n", "utf-8")
    printed.FILE.write_text(printed.printed(), "utf-8")
