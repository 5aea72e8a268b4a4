"""Secrets in texts that people send to each other, as far as their form tells."""

import re

REMOVED = "[removed]"
_WORDS = (
    r"(?:[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential)[\w.-]*)"
)
_PATTERNS = (
    # A private key as PEM has it.
    re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    # The credentials of an URL, and of a request's header.
    re.compile(r"(://[^/\s:@]+:)[^/\s@]+(@)"),
    re.compile(r"(\bauthorization['\"]?\s*[:=]\s*['\"]?(?:bearer|basic)?\s*)[^\s'\",]{8,}()", re.IGNORECASE),
    # A variable or key that is called one: NAME=value, "name": "value", --name value.
    re.compile(rf"((?:\b|--){_WORDS}['\"]?\s*[:=]\s*['\"]?)[^\s'\",;]+()", re.IGNORECASE),
    re.compile(rf"(--{_WORDS}\s+['\"]?)[^\s'\",;-][^\s'\",;]*()", re.IGNORECASE),
    # Forms of their own: AWS (IAM User Guide, "Unique identifiers"), GitHub, Hugging Face, JSON Web Tokens, Pulumi.
    re.compile(r"\b()(?:AKIA|ASIA)[A-Z0-9]{16}\b()"),
    re.compile(r"\b()(?:gh[pousr]_|github_pat_|hf_|xox[abp]-)[A-Za-z0-9_-]{16,}()"),
    re.compile(r"\b()eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*()"),
    re.compile(r"\b()v1:[A-Za-z0-9+/]{12,}={0,2}:[A-Za-z0-9+/]{12,}={0,2}()"),
)


def without_secrets(text: str) -> str:
    """The text with every secret that can be recognized replaced with ``[removed]``."""
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\1{REMOVED}\2", text)
    return text
