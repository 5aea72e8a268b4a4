"""What is missing before a deployment, and what helps."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Lack:
    """Something that is missing, and the key or command that helps. Only a ``sure`` one stops a deployment."""

    what: str
    fix: str
    sure: bool = True

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.what, self.fix)))
