"""systemd's unit files, drop-ins included, as far as services need them. Standard library only; runs on the host."""

# Pathlib alone would take longer to load than all the rest.
# ruff: noqa: PTH110, PTH112, PTH119, PTH123, PTH208
# mypy: ignore-errors
import os
import re
import shlex

FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
WANTED = "/etc/systemd/system/multi-user.target.wants"
# Settings that add up over lines; the others keep the last value.
LISTS = ("ExecStart", "ExecStartPre", "ExecStop", "ExecReload", "Environment", "EnvironmentFile", "After", "Alias")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "": 1}


class Unit:
    def __init__(self, name):
        self.name, self.settings, self.problem = name, {}, ""
        self.missing = self.masked = False

    def all(self, section, key):
        return list(self.settings.get((section, key), []))

    def get(self, section, key, default=""):
        values = self.settings.get((section, key))
        return values[-1] if values else default

    def read(self, path):
        section = ""
        with open(path) as file:
            text = file.read().replace("\\\n", " ")
        for line in text.splitlines():
            line = line.strip()
            if not line or line[0] in "#;":
                continue
            if line[0] == "[":
                section = line.strip("[]")
                continue
            key, _, value = (part.strip() for part in line.partition("="))
            if not value:
                self.settings.pop((section, key), None)
            elif key in LISTS or key.startswith("Condition"):
                self.settings.setdefault((section, key), []).append(value)
            else:
                self.settings[section, key] = [value]

    def conditions_met(self):
        paths = self.all("Unit", "ConditionPathExists")
        return all(os.path.exists(path.lstrip("!")) != path.startswith("!") for path in paths)

    def environment(self):
        found = {}
        for line in self.all("Service", "Environment"):
            for part in shlex.split(line):
                key, _, value = part.partition("=")
                found[key] = value
        for path in self.all("Service", "EnvironmentFile"):
            if os.path.exists(path.lstrip("-")):
                with open(path.lstrip("-")) as file:
                    for line in file:
                        key, separator, value = line.strip().partition("=")
                        if separator and not key.startswith("#"):
                            found[key.strip()] = " ".join(shlex.split(value))
        return found


def load(name):
    """A unit by its name or one of its aliases; ``missing`` where there is no such file."""
    name = name if name.endswith((".service", ".target", ".socket", ".timer")) else name + ".service"
    for folder in FOLDERS:
        path = f"{folder}/{name}"
        if os.path.lexists(path):
            real = os.path.realpath(path)
            if real == "/dev/null":
                unit = Unit(name)
                unit.masked, unit.problem = True, f"Unit {name} is masked."
                return unit
            if os.path.exists(real):
                unit = Unit(os.path.basename(real))
                unit.read(real)
                for drop_in in _drop_ins({name, unit.name}):
                    unit.read(drop_in)
                return unit
    unit = Unit(name)
    unit.missing, unit.problem = True, f"Unit {name} not found."
    return unit


def _drop_ins(names):
    found = {}
    for folder in reversed(FOLDERS):
        for name in names:
            path = f"{folder}/{name}.d"
            if os.path.isdir(path):
                for entry in os.listdir(path):
                    if entry.endswith(".conf"):
                        found[entry] = f"{path}/{entry}"
    return [found[entry] for entry in sorted(found)]


def enabled():
    return sorted(os.listdir(WANTED)) if os.path.isdir(WANTED) else []


def mounts_at_boot():
    """Whether fstab has a shared file system."""
    if not os.path.exists("/etc/fstab"):
        return False
    with open("/etc/fstab") as file:
        return any(" lustre " in line for line in file if not line.startswith("#"))


def in_order(names):
    """After first: a unit follows those of ``names`` that it names there."""
    done = []

    def visit(name, above):
        if name in done or name in above:
            return
        for line in load(name).all("Unit", "After"):
            for other in line.split():
                if other in names:
                    visit(other, [*above, name])
        done.append(name)

    for name in names:
        visit(name, [])
    return done


def command(line, environment):
    """An Exec line as arguments: ``$X`` alone is split into words, ``${X}`` is not."""
    words = []
    for word in shlex.split(line.lstrip("@-:+!")):
        if re.fullmatch(r"\$\w+", word):
            words += shlex.split(environment.get(word[1:], ""))
        else:
            word = re.sub(r"\$\{(\w+)\}", lambda match: environment.get(match.group(1), ""), word)
            word = re.sub(r"\$(\w+)", lambda match: environment.get(match.group(1), ""), word)
            words.append(word.replace("%%", "%"))
    return words


def seconds(text):
    """A time span such as ``1min 30s``, ``100ms`` or ``5``."""
    if text == "infinity":
        return 1e9
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)\s*([a-z]*)", text))
