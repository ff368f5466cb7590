import json
import string
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from infra_recording import DIGEST

from infra.spec import ClusterSpec, LoadedSpec, config_key, load_spec

ROOT = Path(__file__).parents[2]
GOOD = {"aws:region": "eu-west-1", "rayrig:accessCidr": "203.0.113.7/32", "rayrig:image": f"registry/ray@{DIGEST}"}


def load(**keys: str) -> LoadedSpec:
    return load_spec(GOOD | {f"rayrig:{key}": value for key, value in keys.items()})


def only_problem(loaded: LoadedSpec) -> str:
    (problem,) = loaded.problems
    return str(problem)


def test_region_access_and_image_alone_are_enough() -> None:
    loaded = load_spec(GOOD)
    assert not loaded.problems
    assert loaded.spec.workers == 2
    assert loaded.spec.ttl_hours == 12
    assert loaded.spec.bucket("123456789012") == "rayrig-results-123456789012-eu-west-1"


def test_values_come_typed_from_pulumis_text() -> None:
    loaded = load(
        workers="3",
        ttlHours="1.5",
        keepResults="false",
        storage="my-results",
        rayHealthCheck='{"periodMs": 1000}',
        tags='{"team": "rl", "cost": 12}',
        accessCidr="198.51.100.4",
    )
    assert not loaded.problems
    spec = loaded.spec
    assert (spec.workers, spec.ttl_hours, spec.keep_results) == (3, 1.5, False)
    assert spec.ray_health_check.period_ms == 1000
    assert spec.ray_health_check.timeout_ms == 10000
    assert spec.tags == {"team": "rl", "cost": "12"}
    assert spec.access_cidr == "198.51.100.4/32"
    assert spec.bucket("123456789012") == "my-results"


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("workers", "-1", "greater than or equal to 0"),
        ("workers", "two", "valid integer"),
        ("workers", "2.5", "valid integer"),
        ("ttlHours", "0", "greater than 0"),
        ("ttlHours", "-3", "greater than 0"),
        ("ttlHours", "721", "less than or equal to 720"),
        ("ttlHours", "inf", "finite"),
        ("accessCidr", "203.0.113.7/33", "not an address block"),
        ("accessCidr", "home", "not an address block"),
        ("accessCidr", "203.0.113.7/24", "write 203.0.113.0/24, or 203.0.113.7/32"),
        ("vpcCidr", "10.77.0.0/33", "not an address block"),
        ("image", "registry/ray:2.60", "give its digest"),
        ("image", "registry/ray@sha256:abc", "3 seen"),
        ("image", f"registry/ray@{DIGEST}0", "65 seen"),
        ("image", f"registry/ray@{DIGEST.upper()}", "64 digits 0-9 a-f"),
        ("image", f"@{DIGEST}", "no repository"),
        ("storage", "ab", "3 to 63 characters"),
        ("storage", "a" * 64, "3 to 63 characters"),
        ("storage", "My_Bucket", "3 to 63 characters"),
        ("storage", "results-s3alias", "AWS reserves"),
        ("headType", "large", "looks like g5.xlarge"),
        ("workerType", "G5.XLARGE", "looks like g5.xlarge"),
        ("keepResults", "perhaps", "valid boolean"),
        ("rootGib", "7", "greater than or equal to 8"),
        ("tags", "team=rl", "not a JSON object"),
        ("rayHealthCheck", "[]", "is wrong"),
    ],
)
def test_a_wrong_value_is_one_message_with_key_value_and_command(key: str, value: str, says: str) -> None:
    text = only_problem(load(**{key: value}))
    assert text.startswith(f"rayrig:{key}: ")
    assert says in text
    assert f"Next: pulumi config set {key} " in text
    assert "\n" not in text


def test_a_wrong_part_of_a_structured_value_is_named_by_its_path() -> None:
    loaded = load(rayHealthCheck='{"periodMs": 0, "perodMs": 1}')
    first, second = map(str, loaded.problems)
    assert "rayrig:rayHealthCheck.periodMs" in first
    assert "pulumi config set --path rayHealthCheck.periodMs" in first
    assert "pulumi config rm --path rayHealthCheck.perodMs" in second


@pytest.mark.parametrize("missing", list(GOOD))
@pytest.mark.parametrize("empty", [None, ""])
def test_a_missing_key_says_what_it_is_and_how_to_set_it(missing: str, empty: str | None) -> None:
    config = GOOD | {missing: empty or ""}
    if empty is None:
        del config[missing]
    text = only_problem(load_spec(config))
    assert text.startswith(f"{missing}: is not set: ")
    assert f"Next: pulumi config set {missing.removeprefix('rayrig:')} " in text


def test_a_misspelt_region_is_told() -> None:
    assert "looks like eu-west-1" in only_problem(load_spec(GOOD | {"aws:region": "euwest1"}))


@pytest.mark.parametrize(
    ("key", "nearest"),
    [("acessCidr", "accessCidr"), ("worker", "workers"), ("TTLHOURS", "ttlHours"), ("gpuTypes", None)],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest(key: str, nearest: str | None) -> None:
    text = only_problem(load(**{key: "1"}))
    assert text.startswith(f"rayrig:{key}: there is no such key")
    assert (f"the nearest is {nearest}" if nearest else "the keys are accessCidr, ") in text
    assert f"pulumi config rm {key}" in text


def test_other_namespaces_are_left_alone_but_unused_aws_settings_are_told() -> None:
    assert not load_spec(GOOD | {"other:thing": "1"}).problems
    assert "AWS" not in only_problem(load_spec(GOOD | {"aws:profile": "me"})).split("Next")[0].removeprefix("aws:")


def test_everything_wrong_is_found_at_once_and_the_rest_still_counts() -> None:
    loaded = load_spec({"aws:region": "x", "rayrig:workers": "-1", "rayrig:wrkers": "1", "rayrig:ttlHours": "5"})
    assert len(loaded.problems) == 5
    assert loaded.wrong == {"region", "workers", "access_cidr", "image"}
    assert loaded.spec.ttl_hours == 5


def test_pulumi_yaml_documents_every_key_with_the_same_default() -> None:
    document = yaml.safe_load((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"))["config"]
    structured = {"rayHealthCheck", "tags"}
    assert set(document) | structured == {
        config_key(name).removeprefix("rayrig:") for name in ClusterSpec.model_fields if name != "region"
    }
    defaults = {f"rayrig:{key}": str(entry["default"]).removesuffix(".0") for key, entry in document.items()}
    loaded = load_spec(defaults | GOOD)
    assert not loaded.problems
    assert loaded.spec == load_spec(GOOD).spec
    kinds = {"integer": int, "boolean": bool, "string": str}
    for entry in document.values():
        assert entry["description"]
        assert isinstance(entry["default"], kinds[entry["type"]])
    text = (ROOT / "Pulumi.yaml").read_text(encoding="utf-8")
    assert all(f"{key}:" in text for key in structured)


def test_every_field_is_described() -> None:
    assert all(field.description for field in ClusterSpec.model_fields.values())


KEYS = [config_key(name) for name in ClusterSpec.model_fields]
WORDS = st.text(string.printable, max_size=20)
JUNK = st.one_of(WORDS, st.integers().map(str), st.builds(json.dumps, st.dictionaries(WORDS, st.none(), max_size=3)))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=st.dictionaries(st.sampled_from([*KEYS, "rayrig:x", "aws:y"]), JUNK))
def test_no_configuration_whatever_ends_in_anything_but_readable_problems(config: dict[str, Any]) -> None:
    loaded = load_spec(config)
    for problem in loaded.problems:
        assert problem.where
        assert problem.next_step
    assert bool(loaded.problems) >= bool(loaded.wrong)
