import pytest

from contract.errors import ConfigError
from contract.exit_codes import ExitCode
from jobs.train.config import Needs, PPOConfig, parse_config


def test_an_unknown_key_names_its_nearest_neighbour_and_all_that_exist() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(PPOConfig, {"targt_return": 400}, source="--set")
    assert "did you mean 'target_return'?" in str(raised.value)
    assert "num_runners" in str(raised.value)
    assert raised.value.exit_code == ExitCode.USAGE


def test_a_name_of_rllibs_old_stack_is_an_error() -> None:
    with pytest.raises(ConfigError, match="num_rollout_workers"):
        parse_config(PPOConfig, {"num_rollout_workers": 2}, source="--set")


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"lr": -1}, "lr"),
        ({"num_runners": -1}, "num_runners"),
        ({"minibatch_size": 4096}, "minibatch_size is larger"),
        ({"num_runners": 64}, "more runners than environments"),
        ({"learner_gpus": 2}, "learner_gpus"),
        ({"hidden": [64, -1]}, "hidden"),
        ({"seed": 2**32}, "seed"),
    ],
)
def test_values_that_do_not_fit_are_named(values: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        parse_config(PPOConfig, values, source="--set")


def test_text_from_a_command_line_becomes_numbers() -> None:
    assert parse_config(PPOConfig, {"lr": "1e-3", "hidden": [32]}, source="--set").lr == 0.001


def test_needs_follow_the_settings() -> None:
    assert PPOConfig().needs() == Needs(runners=0, gpus=0)
    assert PPOConfig(num_runners=3, learner_gpus=1).needs() == Needs(runners=3, gpus=1)
