"""Operations: what a person or CI runs against a stack, ``hyperpod VERB``.

Every verb is a thin shell over functions that a program can import: they take a ``Target`` (or an ``Aws``), return
dataclasses, and raise ``Failure`` with the command's exit code.
"""

VERSION = "0.9.0"
