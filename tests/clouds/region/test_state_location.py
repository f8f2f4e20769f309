"""The location of the state backend and of images, as `gpuinfra ready` reads them.

botocore's Stubber, Google's discovery documents and the models of azure-mgmt-storage validate the requests and the responses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import boto3
import pytest
from azure.mgmt.keyvault.operations import _operations as vault_operations
from azure.mgmt.storage import models as storage
from azure.mgmt.storage.operations import _operations as operations
from botocore.stub import Stubber

from gpuinfra.clouds.aws.region import readiness as aws
from gpuinfra.clouds.azure.region import readiness as azure
from gpuinfra.clouds.gcp.region import readiness as gcp
from gpuinfra.clouds.region.readiness import CHANGE, FAIL, MOVE, OK, SKIPPED, UNREAD, ReadinessLine, Unread
from tests.clouds.gcp.discovery import document
from tests.clouds.region.test_readiness import question
from tests.doctor.test_azure_live import checked

NAME = "PULUMI_BACKEND_URL"
SUBSCRIPTION = "00000000-0000-4000-8000-000000000001"
IMAGE = "projects/our-images/global/images/gpu-1"


def line(lines: Iterable[ReadinessLine]) -> tuple[str, str]:
    """The state and the reason of the only line, which is about the backend."""
    (one,) = lines
    assert (one.topic, one.name) == ("state", NAME)
    assert one.fix == (MOVE if one.state == FAIL else "log in to the cloud, and run the command again" if one.state == UNREAD else "")  # fmt: skip
    return one.state, one.reason


def on_aws(url: str, answer: dict[str, Any] | str) -> list[ReadinessLine]:
    """Ask with this answer of HeadBucket. A string is an error code."""
    asked = replace(question("aws-recovery", ()), backend=(NAME, url))
    made: Any = boto3.client("s3", region_name="us-west-2", aws_access_key_id="a", aws_secret_access_key="b")
    with Stubber(made) as stub:
        if isinstance(answer, str):
            stub.add_client_error("head_bucket", answer, "refused", 400, expected_params={"Bucket": "our-state"})
        else:
            stub.add_response("head_bucket", answer, {"Bucket": "our-state"})

        def client(service: str, region: str) -> Any:
            assert (service, region) == ("s3", "us-west-2")  # The first Region may not respond.
            return made

        return list(aws.backend(asked, client))


@pytest.mark.parametrize(
    ("answer", "state", "reason"),
    [
        ({"BucketRegion": "us-east-2"}, FAIL, "is in us-east-2, so a failover cannot read"),
        ({"BucketRegion": "eu-west-1"}, OK, "is in eu-west-1"),
        ("404", UNREAD, "s3://our-state/path?profile=p was not found"),
        ("403", UNREAD, "403"),
    ],
)
def test_region_of_a_state_bucket_on_aws_is_read(answer: Any, state: str, reason: str) -> None:
    """A bucket in the Region of the stack fails. A bucket that cannot be read is not a failure."""
    found = line(on_aws("s3://our-state/path?profile=p", answer))
    assert found[0] == state
    assert reason in found[1]


@pytest.mark.parametrize("url", ["", "https://api.pulumi.com", "gs://our-state", "s3://our-state?endpoint=minio.lab"])
def test_backend_elsewhere_is_not_read_on_aws(url: str) -> None:
    """A backend that is not in AWS does not fail with a Region of AWS."""
    assert on_aws(url, {}) == []


def on_google(url: str, answer: Any) -> list[ReadinessLine]:
    """Ask with this answer of buckets.get."""

    def get(service: str, path: str, parameters: Mapping[str, str]) -> dict[str, Any] | None:
        assert (service, path, dict(parameters)) == ("storage", "storage/v1/b/our-state", {})
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            assert set(answer) <= set(document("storage.v1")["schemas"]["Bucket"]["properties"])
        return answer  # type: ignore[no-any-return]

    return list(gcp.backend(replace(question("gcp-recovery", ()), backend=(NAME, url)), get))


@pytest.mark.parametrize(
    ("answer", "state", "reason"),
    [
        ({"location": "US-CENTRAL1", "locationType": "region"}, FAIL, "is in us-central1, so a failover cannot read"),
        ({"location": "US-EAST4", "locationType": "region"}, OK, "is in us-east4"),
        ({"location": "US", "locationType": "multi-region"}, OK, "is in us"),
        (None, UNREAD, "gs://our-state/path was not found"),
        (Unread("403"), UNREAD, "403"),
    ],
)
def test_location_of_a_state_bucket_on_google_cloud_is_read(answer: Any, state: str, reason: str) -> None:
    """A bucket in the region of the stack fails. Multi-regions and other regions survive."""
    found = line(on_google("gs://our-state/path", answer))
    assert found[0] == state
    assert reason in found[1]
    assert on_google("s3://our-state", answer) == []


def on_azure(url: str, environment: Mapping[str, str], found: Any = None) -> list[ReadinessLine]:
    """Ask with accounts in the first region and in another one."""
    listed = [
        {"name": name, "location": location, "properties": checked(storage.StorageAccountProperties, {})}
        for name, location in (("one", "southcentralus"), ("two", "West US 2"))
    ]

    def every(path: str, api: str) -> Iterable[Mapping[str, Any]]:
        request = operations.build_storage_accounts_list_request(SUBSCRIPTION, api_version=api)
        assert request.url.split("?")[0] == path
        if found:
            raise found
        return listed

    state = [{"type": "x", "id": ""}, {"type": "y", "id": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g"}]
    return list(azure.backend(replace(question("azure-recovery", state), backend=(NAME, url)), every, environment))


@pytest.mark.parametrize(
    ("url", "environment", "state", "reason"),
    [
        ("azblob://state?storage_account=one", {}, FAIL, "is in southcentralus, so a failover cannot read"),
        ("azblob://state", {"AZURE_STORAGE_ACCOUNT": "one"}, FAIL, "is in southcentralus"),
        ("azblob://state?storage_account=two", {"AZURE_STORAGE_ACCOUNT": "one"}, OK, "is in westus2"),
        ("azblob://state?storage_account=three", {}, SKIPPED, f"three is not in the subscription {SUBSCRIPTION}"),
        ("azblob://state", {}, SKIPPED, "the storage account of the state backend is not in"),
    ],
)
def test_region_of_a_state_account_on_azure_is_read(
    url: str, environment: dict[str, str], state: str, reason: str
) -> None:
    """The account is in the URL or in a variable. An account in another subscription is not checked."""
    found = line(on_azure(url, environment))
    assert found[0] == state
    assert reason in found[1]


def vault_lines(url: str, found: Any = None) -> list[ReadinessLine]:
    """Ask with vaults in the first region and in another one."""
    listed = [{"name": name, "location": location} for name, location in (("Keys", "southcentralus"), ("others", "West US 2"))]  # fmt: skip

    def every(path: str, api: str) -> Iterable[Mapping[str, Any]]:
        request = vault_operations.build_vaults_list_by_subscription_request(SUBSCRIPTION, api_version=api)
        assert request.url.split("?")[0] == path
        if found:
            raise found
        return listed

    state = [{"type": "y", "id": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g"}]
    asked = replace(question("azure-recovery", state), secrets=(("secretsprovider of one", url),))
    return list(azure.vaults(asked, every))


@pytest.mark.parametrize(
    ("vault", "found", "state", "reason"),
    [
        ("keys", None, FAIL, "is in southcentralus, so a failover cannot decrypt"),
        ("others", None, OK, "is in westus2"),
        ("third", None, SKIPPED, f"third is not in the subscription {SUBSCRIPTION}"),
        ("keys", Unread("403"), UNREAD, "403"),
    ],
)
def test_region_of_a_key_vault_is_read(vault: str, found: Any, state: str, reason: str) -> None:
    """The vault of a secrets provider must not be in the first region. A vault in another subscription is not checked, and a refused list is not a failure."""
    (one,) = vault_lines(f"azurekeyvault://{vault}.vault.azure.net/keys/pulumi", found)
    assert (one.topic, one.name, one.state) == ("state", "secretsprovider of one", state)
    assert reason in one.reason
    assert (one.fix == CHANGE.replace("STACK", "one")) is (state == FAIL)
    assert vault_lines("passphrase") == []


def test_unread_accounts_and_other_backends_on_azure() -> None:
    """A refused list is not a failure, and a backend that is not in Azure is not read."""
    assert line(on_azure("azblob://state?storage_account=one", {}, Unread("403"))) == (UNREAD, "403")
    assert on_azure("s3://state", {}) == []


def on_image(ref: str, answer: Any) -> list[ReadinessLine]:
    """Ask with this answer of images.get."""

    def get(service: str, path: str, parameters: Mapping[str, str]) -> dict[str, Any] | None:
        assert (service, path) == ("compute", IMAGE)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            assert set(answer) <= set(document("compute.v1")["schemas"]["Image"]["properties"])
        return answer  # type: ignore[no-any-return]

    return list(gcp.images(replace(question("gcp-recovery", ()), images=(ref,)), get))


@pytest.mark.parametrize("ref", [IMAGE, f"https://www.googleapis.com/compute/v1/{IMAGE}"])
def test_image_in_the_first_region_only_is_named(ref: str) -> None:
    """Images are global resources, but the image is stored in one region. The fix copies it."""
    (found,) = on_image(ref, {"name": "gpu-1", "storageLocations": ["us-central1"]})
    assert (found.topic, found.name, found.state) == ("image", ref, FAIL)
    assert "stored only in us-central1" in found.reason
    assert "--source-image=gpu-1 --source-image-project=our-images --storage-location=us-east4" in found.fix


@pytest.mark.parametrize("places", [["us"], ["us-east4"], ["us-central1", "us-east4"], []])
def test_image_that_survives_has_no_line(places: list[str]) -> None:
    """`preflight` has the line about an image that exists, and about one that does not."""
    assert on_image(IMAGE, {"name": "gpu-1", "storageLocations": places}) == []
    assert on_image(IMAGE, None) == []
    assert [one.state for one in on_image(IMAGE, Unread("403"))] == [UNREAD]
