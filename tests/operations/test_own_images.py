"""An image of one's own that HyperPod could not start is told before anything is made."""

import json
from typing import Any

import pytest

from operations.cluster import changes
from operations.deployment import own_images
from operations.deployment.preconditions import _QUESTIONS
from operations.failures import Failure
from operations.target import Target
from tests.operations.aws import StubbedAws, stack
from tests.rows import each

AMI, ACCOUNT = "ami-0123456789abcdef0", "123456789012"
GROUPS = [
    {"name": "plain", "instanceType": "ml.g5.16xlarge"},
    {"name": "hardened", "instanceType": "ml.g5.16xlarge", "imageId": AMI},
]
ROOT = {"Ebs": {"SnapshotId": "snap-0123456789abcdef0", "Encrypted": False}}
GOOD = {
    "ImageId": AMI,
    "OwnerId": ACCOUNT,
    "State": "available",
    "Architecture": "x86_64",
    "BlockDeviceMappings": [ROOT, {"VirtualName": "ephemeral0"}],
    "Tags": [{"Key": "AllowSharing", "Value": "true"}],
}
ENCRYPTED = {"BlockDeviceMappings": [{"Ebs": {"SnapshotId": "snap-0123456789abcdef0", "Encrypted": True}}]}
DEFECTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "another's": ({"OwnerId": "210987654321"}, f"{AMI} belongs to 210987654321", f"a copy that {ACCOUNT} owns"),
    "not ready": ({"State": "pending"}, "is pending", "wait"),
    "another processor": ({"Architecture": "arm64"}, "is for arm64, and ml.g5.16xlarge has x86_64", "for x86_64"),
    "two volumes": ({"BlockDeviceMappings": [ROOT, ROOT]}, "has 2 volumes", "only its root volume"),
    "encrypted": (ENCRYPTED, "is encrypted", "hyperpod:security.kmsKey"),
    "not to be shared": ({"Tags": []}, "has no tag AllowSharing=true", f"--resources {AMI} snap-0123456789abcdef0"),
}


def there(aws: StubbedAws, *images: dict[str, Any], settings: tuple[str, ...] = ()) -> Target:
    """A stack with a group that boots from the image, in an account with these images."""
    aws.answer("sts", "get_caller_identity", {"Account": ACCOUNT})
    aws.answer("ec2", "describe_images", {"Images": list(images)}, Filters=[{"Name": "image-id", "Values": [AMI]}])
    return stack(aws, "dev", f"hyperpod:workers={json.dumps(GROUPS)}", *settings)


@each(DEFECTS)
def test_an_image_that_would_not_start_is_told_by_its_defect(
    changed: Any, said: str, fix: str, aws: StubbedAws
) -> None:
    (lack,) = own_images.lacks(there(aws, GOOD | changed))
    assert lack.what.startswith(f"hyperpod:workers[1].imageId: {AMI} ")
    assert said in lack.what
    assert fix in lack.fix
    assert lack.sure == (changed != {"Tags": []})


def test_an_image_that_is_not_there_is_told(aws: StubbedAws) -> None:
    (lack,) = own_images.lacks(there(aws))
    assert lack.what == f"hyperpod:workers[1].imageId: there is no image {AMI} in us-west-2"
    assert own_images.lacks in _QUESTIONS


@pytest.mark.parametrize("image", [GOOD, GOOD | {"OwnerId": "1", "ImageOwnerAlias": "amazon", "Tags": []}])
def test_a_good_image_and_one_of_hyperpods_lack_nothing(image: dict[str, Any], aws: StubbedAws) -> None:
    assert list(own_images.lacks(there(aws, image))) == []


def test_its_key_may_encrypt_an_image(aws: StubbedAws) -> None:
    key = 'hyperpod:security={"kmsKey": "create"}'
    assert list(own_images.lacks(there(aws, GOOD | ENCRYPTED, settings=(key,)))) == []


def test_new_software_leaves_groups_with_an_image_of_ones_own_alone(aws: StubbedAws) -> None:
    chosen = stack(aws, "dev", f"hyperpod:workers={json.dumps(GROUPS)}")
    assert changes.updatable(chosen, []) == ["controller", "plain"]
    assert changes.updatable(chosen, ["plain"]) == ["plain"]
    assert changes.updatable(stack(aws), []) == [], "without such a group, SageMaker chooses all"
    with pytest.raises(Failure, match="hardened has an image of your own"):
        changes.updatable(chosen, ["hardened"])


def test_new_software_is_not_asked_for_all_groups_where_each_has_an_image_of_ones_own(aws: StubbedAws) -> None:
    groups = [GROUPS[1], GROUPS[1] | {"name": "system", "instanceType": "ml.m5.xlarge"}]
    with pytest.raises(Failure, match="hardened, system has an image of your own"):
        changes.updatable(stack(aws, "eks-gpu", f"hyperpod:workers={json.dumps(groups)}"), [])
