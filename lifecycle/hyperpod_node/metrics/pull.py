"""``hyperpod-pull IMAGE``: pulls an image unless the node has it. Units run it before they start a container."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

from ..host.aws_cli import LIMITS
from ..host.errors import StepError
from ..host.host import Host
from ..host.settings import Settings

SECONDS = 1500.0
_ECR = re.compile(r"([0-9]{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?/[\w./-]+:[\w.-]+", re.ASCII)


def ensure(host: Host, image: str) -> bool:
    """Pull an image of Amazon ECR unless the node has it. Return True if it was pulled. Raises StepError with the
    reason.
    """
    found = _ECR.fullmatch(image)
    if not found:
        raise StepError(f"{image} is not an image in Amazon ECR")
    if host.run("docker", "image", "inspect", "--format", "{{.Id}}", image, check=False).code == 0:
        return False
    token = _token(host, found.group(2))
    # Docker would write the token to root's home for good. In memory, and for one command.
    with tempfile.TemporaryDirectory(prefix="hyperpod-pull-", dir=str(host.path("/run"))) as folder:
        config = Path(folder) / "config.json"
        config.touch(0o600)
        config.write_text(json.dumps({"auths": {image.split("/")[0]: {"auth": token}}}), encoding="ascii")
        host.run("docker", "--config", folder, "pull", "--quiet", image, timeout=SECONDS)
    return True


def _token(host: Host, region: str) -> str:
    shown = host.run(
        "aws", "ecr", "get-authorization-token", "--region", region, "--output", "json", *LIMITS,
        timeout=60, env={"AWS_PAGER": "", "AWS_EC2_METADATA_V1_DISABLED": "true"},
    )  # fmt: skip
    try:
        return str(json.loads(shown.out)["authorizationData"][0]["authorizationToken"])
    except (ValueError, LookupError, TypeError):
        raise StepError("`aws ecr get-authorization-token` gave no token") from None


def main() -> int:
    """Report what was done, or why not."""
    host = Host(Settings.from_environment())
    try:
        pulled = ensure(host, sys.argv[1] if len(sys.argv) == 2 else "")
    except (StepError, OSError) as error:
        print(f"hyperpod-pull: {error}", file=sys.stderr)
        return 1
    print("hyperpod-pull: " + ("pulled" if pulled else "already here"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
