import pytest

from rehearsal.metadata.tokens import Tokens


def test_a_token_is_for_its_instance_and_its_time_only():
    now = 100.0
    tokens = Tokens(clock=lambda: now)
    token = tokens.issue("i-1", 60)
    assert tokens.valid(token, "i-1")
    assert not tokens.valid(token, "i-2")
    assert not tokens.valid("other", "i-1")
    now = 160.0
    assert not tokens.valid(token, "i-1")


@pytest.mark.parametrize("ttl_seconds", [0, -1, 21601])
def test_lives_outside_ec2s_bounds_are_refused(ttl_seconds: int):
    with pytest.raises(ValueError, match="21600"):
        Tokens().issue("i-1", ttl_seconds)
