"""``python3 -I isolated.py MODULE [arguments]``: runs a module that lies next to this file, as ``python3 -m`` would.

``-m`` looks for modules in the working folder first, PYTHONPATH and ~/.local come from the caller: who can write there
would be whoever calls, root too. With ``-I`` there is none of that, and this adds its own folder alone.
"""

import os
import runpy
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 (nothing imported that is not needed)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
