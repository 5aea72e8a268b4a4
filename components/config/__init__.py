"""The stack's configuration: read once, typed, checked, with all problems reported together."""

from ..kubernetes.keys import Charts, Team
from ..network.keys import NetworkConfig
from ..schema.problems import BY_OPTION, ConfigError, Problem, is_kept_secret, kept_secret, mistyped
from ..security.keys import Security
from ..storage.keys import Fsx
from ..workers.instance_groups import InstanceGroup
from ..workers.keys import Login, Taint, WorkerGroup
from .load import load, parse
from .model import Settings
from .resolved import Config

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
