"""What is wrong with a stack's file is told with its line, before anything else happens."""

import shutil
from pathlib import Path

import pytest

from components.config import ConfigError
from operations import target
from operations.failures import Exit, explain
from operations.project.stack_file import ProjectError
from tests.operations.aws import run
from tests.rows import each
from tests.support import ROOT

HEAD = b"config:\n  aws:region: us-west-2\n"


def refused(folder: Path, content: bytes) -> str:
    """What a stack's file is refused with: the message and the next step."""
    shutil.copy(ROOT / "Pulumi.yaml", folder)
    (folder / "Pulumi.bad.yaml").write_bytes(content)
    with pytest.raises((ProjectError, ConfigError)) as wrong:
        target.load("bad", root=folder)
    failure = explain(wrong.value)
    assert failure is not None
    assert failure.code == Exit.BAD_INPUT
    assert failure.known.code in ("HP021", "HP220")
    return f"{failure.message}\n{failure.hint}"


@each(
    {
        "a tab": (HEAD + b"\thyperpod:size: small\n", "line 3: a tab; YAML is indented with spaces"),
        "nothing": (b"", "the file is empty\n`hyperpod init NAME --dry-run`"),
        "comments": (b"# later\n", "the file is empty"),
        "a list": (b"- a\n", "line 1: keys with values are expected"),
        "no text": (HEAD + b"  hyperpod:size: \xff\xfe\n", "line 3: this is not UTF-8 text"),
        "a null byte": (HEAD + b"  hyperpod:size: \0\n", "line 3: the character 0x00"),
        "an open list": (HEAD + b"  hyperpod:workers: [\n", "line 4: column 1: did not find"),
        "a key twice": (
            HEAD + b"  hyperpod:size: small\n  hyperpod:size: large\n",
            "Pulumi.bad.yaml, line 4: hyperpod:size is set again, after line 3\ndelete one",
        ),
        "a part twice": (
            HEAD + b"  hyperpod:fsx:\n    storageGiB: 1200\n    storageGiB: 2400\n",
            "line 5: hyperpod:fsx.storageGiB is set again, after line 4",
        ),
        "a key with its namespace and without": (
            HEAD + b"  hyperpod:size: small\n  size: large\n",
            "line 4: hyperpod:size is set again, after line 3",
        ),
        "a misspelt section": (
            b"confg:\n  aws:region: us-west-2\n",
            "line 1: a stack's file has no key confg\ndid you",
        ),
        "a misspelt namespace": (
            HEAD + b"  hyperpo:size: small\n",
            "Pulumi.bad.yaml, line 3: hyperpo:size: no program reads this key; did you mean hyperpod:size?",
        ),
        "a namespace of nothing": (HEAD + b"  cluster:size: small\n", "did you mean hyperpod:size?"),
        "a bad value": (HEAD + b"  hyperpod:size: huge\n", "Pulumi.bad.yaml, line 3: hyperpod:size: "),
        "a bad value of a part": (
            HEAD + b"  hyperpod:workers:\n    - name: a\n      instanceType: ml.p5.48xlarge\n      count: -1\n",
            "Pulumi.bad.yaml, line 6: hyperpod:workers[0].count: ",
        ),
        "a bad value without its namespace": (HEAD + b"  size: huge\n", "Pulumi.bad.yaml, line 3: hyperpod:size: "),
        "a value of another type": (HEAD + b"  hyperpod:protect: 7\n", "Pulumi.bad.yaml, line 3: hyperpod:protect: "),
    }
)
def test_it_is_refused_with_file_line_and_remedy(content: bytes, said: str, tmp_path: Path) -> None:
    assert said in refused(tmp_path, content)


def test_the_next_step_is_to_edit_that_line(tmp_path: Path) -> None:
    assert "edit Pulumi.STACK.yaml" in refused(tmp_path, HEAD + b"  hyperpod:size: huge\n")


def test_what_the_command_line_sets_is_not_said_to_be_in_the_file() -> None:
    with pytest.raises(ConfigError) as wrong:
        target.load("dev", ["hyperpod:size=huge", "hyperpo:x=1"])
    assert "line" not in str(wrong.value)
    assert "hyperpo:x: no program reads this key" in str(wrong.value)
    _, _, err = run("cost", "dev", "--config", "hyperpod:size=huge")
    assert "\n  hyperpod:size: 'huge'" in err
    assert "\nNext: correct the option; " in err


def test_keys_of_other_packages_are_theirs(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Pulumi.yaml", tmp_path)
    text = (ROOT / "Pulumi.dev.yaml").read_text()
    (tmp_path / "Pulumi.dev.yaml").write_text(f"{text}  datadog:site: eu\nencryptionsalt: v1:x\n")
    assert target.load("dev", root=tmp_path).project.config["datadog:site"] == "eu"
