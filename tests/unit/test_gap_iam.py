"""IAM as AWS answers it, where moto fails or lets everything pass."""

import pytest
from botocore.exceptions import ClientError
from in_double import TRUST, aws, client


@pytest.fixture(scope="module")
def iam():
    with aws() as server:
        yield client(server, "iam")


def test_a_role_that_is_not_in_a_profile_cannot_be_taken_out(iam):
    iam.create_role(RoleName="r", AssumeRolePolicyDocument=TRUST)
    iam.create_instance_profile(InstanceProfileName="p")
    with pytest.raises(ClientError) as caught:
        iam.remove_role_from_instance_profile(InstanceProfileName="p", RoleName="r")
    assert caught.value.response["Error"]["Code"] == "NoSuchEntity"


def test_a_trust_policy_names_who_is_trusted(iam):
    with pytest.raises(ClientError) as caught:
        iam.create_role(RoleName="s", AssumeRolePolicyDocument=TRUST.replace("Principal", "Resource"))
    assert caught.value.response["Error"]["Code"] == "MalformedPolicyDocument"
