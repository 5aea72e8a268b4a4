"""Who may write the lifecycle bucket: the deployer is among them, and they stay whoever deploys next."""

from components.security import bucket_writers

ROLES = "arn:aws:iam::123456789012:role"
# The writers of the deployed bucket, those that are configured, the deployer, and what is said.
BAD: dict[str, tuple[list[str], list[str], str]] = {
    "a deployer who was no writer": (["ci"], [], "colleague"),
    "a new writer who deploys": (["ci"], ["ci", "colleague"], "colleague"),
    "a deployer who would be no writer": (["ci"], ["a", "b"], "ci"),
}


def told(deployment: tuple[list[str], list[str], str]) -> list[str]:
    """What is said of it."""
    before, given, who = deployment
    configured = [f"{ROLES}/{one}" for one in given]
    left = {bucket_writers.OUTPUT: [f"{ROLES}/{one}" for one in before]}
    return [str(problem) for problem in bucket_writers.require_writer(configured, left, f"{ROLES}/{who}")]


def test_the_deployer_is_among_those_who_may_write_the_scripts() -> None:
    assert told(([], [], "ci")) == []
    assert told((["ci"], [], "ci")) == []
    assert told((["ci"], ["ci", "colleague"], "ci")) == []
    assert told((["team/*"], ["team/*"], "team/b")) == []


def test_the_writers_stay_whoever_deploys_next() -> None:
    assert bucket_writers.writers((), {}, "first") == ["first"]
    assert bucket_writers.writers((), {bucket_writers.OUTPUT: ["first"]}, "second") == ["first"]
    both = [f"{ROLES}/b", f"{ROLES}/a"]
    assert bucket_writers.writers(both, {bucket_writers.OUTPUT: ["first"]}, "second") == [f"{ROLES}/a", f"{ROLES}/b"]
