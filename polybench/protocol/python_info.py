"""Prints the version and ABI of the Python that runs it, and which of the packages in its arguments it lacks."""

import importlib.util
import json
import sys
import sysconfig

missing = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
print(json.dumps([sys.version_info[:3], sysconfig.get_config_var("SOABI") or "", missing]))
