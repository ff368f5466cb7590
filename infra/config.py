"""The stack's whole configuration, which Pulumi's own Config gives only key by key."""

from pulumi.runtime import config as runtime_config


def read_config() -> dict[str, str]:
    """Every key that is set, `namespace:key` to its text, structured values as JSON.

    All of them are needed, since a misspelt key is an error and not a silent default.
    """
    return {**runtime_config.get_config_env(), **runtime_config.CONFIG.get()}
