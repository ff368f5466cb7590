"""The AWS provider, tied to one account: the safety interlock."""

import pulumi_aws as aws

from contract.resources import Home

SERVICES = ("ec2", "iam", "s3", "sts")
"""What the aws resources of this program call."""
MAX_RETRIES = 3
"""The provider's default, 25, tries a refused launch for close to an hour."""


def aws_provider(home: Home) -> aws.Provider:
    """The explicit provider; it refuses credentials of another account, and in rehearsal any AWS but that one."""
    url = home.endpoint.url
    if url is None:
        return aws.Provider("aws", region=home.region, allowed_account_ids=[home.account_id], max_retries=MAX_RETRIES)
    return aws.Provider(
        "aws",
        region=home.region,
        allowed_account_ids=[home.account_id],
        max_retries=MAX_RETRIES,
        endpoints=[dict.fromkeys(SERVICES, url)],
        s3_use_path_style=True,
        skip_metadata_api_check=True,
    )
