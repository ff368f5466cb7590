"""The `aws` Pulumi provider of the rehearsal: AWS's rules for check, diff and order, over boto3 to the rehearsal."""
