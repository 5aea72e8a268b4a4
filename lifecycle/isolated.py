"""``python3 -I isolated.py MODULE [arguments]``: runs a module next to this file, as ``python3 -m`` would.

``-m`` looks for modules in the working folder first, then in the caller's PYTHONPATH and ~/.local. Anybody who can
write there could run code as the caller, who may be root. ``-I`` uses none of these, and this file adds only its own
folder.
"""

import os
import runpy
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 (imports only what it needs)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
