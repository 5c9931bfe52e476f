"""Prints which bytecode files of its arguments Python would run although they do not belong to their source."""

import importlib.util
import json
import marshal
import re
import sys
from pathlib import Path

_HEADER = 16
"""Bytes: magic number, flags, and time and size of the source, 4 each, if there are no flags."""


def is_harmless(path: str) -> bool:
    """Compile the source, and compare, unless Python would do the same; False if the file cannot be read."""
    try:
        content, source = Path(path).read_bytes(), Path(importlib.util.source_from_cache(path))
        status = source.stat()
        times = [(number & 0xFFFFFFFF).to_bytes(4, "little") for number in (0, int(status.st_mtime), status.st_size)]
        has_flags = content[4:8] != bytes(4)
        if content[:4] != importlib.util.MAGIC_NUMBER or not (has_flags or content[4:_HEADER] == b"".join(times)):
            return True
        level = re.search(r"\.opt-(\d)\.pyc$", path)
        optimize = int(level[1]) if level else 0
        compiled = compile(source.read_bytes(), str(source), "exec", dont_inherit=True, optimize=optimize)
        return bool(marshal.loads(content[_HEADER:]) == compiled)
    except Exception:
        return False


if __name__ == "__main__":
    print(json.dumps([path for path in sys.argv[1:] if not is_harmless(path)]))
