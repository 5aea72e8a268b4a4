"""The stack's configuration: read once, typed, checked, with all problems reported together."""

from .load import load, parse
from .model import Charts, Fsx, Login, Security, Settings, Taint, Team, WorkerGroup
from .network import NetworkConfig
from .problems import BY_OPTION, ConfigError, Problem, is_kept_secret, kept_secret, mistyped
from .resolved import Config, InstanceGroup

__all__ = [
    "BY_OPTION",
    "Charts",
    "Config",
    "ConfigError",
    "Fsx",
    "InstanceGroup",
    "Login",
    "NetworkConfig",
    "Problem",
    "Security",
    "Settings",
    "Taint",
    "Team",
    "WorkerGroup",
    "is_kept_secret",
    "kept_secret",
    "load",
    "mistyped",
    "parse",
]
