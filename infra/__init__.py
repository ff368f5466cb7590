"""The Pulumi program: a typed spec in, AWS resources and one `cluster` output out."""
