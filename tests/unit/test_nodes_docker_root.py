from pathlib import Path

import pytest

from rehearsal.nodes.docker_root import lay_out


def prepared(tmp_path: Path) -> Path:
    root = tmp_path / "prepared"
    layer = root / "overlay2" / "a1"
    (layer / "diff" / "usr").mkdir(parents=True)
    (layer / "diff" / "usr" / "big").write_text("big")
    (layer / "link").write_text("SHORT")
    (root / "overlay2" / "l").mkdir()
    (root / "overlay2" / "l" / "SHORT").symlink_to("../a1/diff")
    (root / "image").mkdir(mode=0o700)
    (root / "image" / "repositories.json").write_text("{}")
    return root


def test_all_is_copied_but_the_layers_files_which_are_bound_in_read_only(tmp_path: Path):
    source, target = prepared(tmp_path), tmp_path / "node"
    (mount,) = lay_out(source, target)
    assert mount["Target"] == "/var/lib/docker/overlay2/a1/diff"
    assert mount["Source"] == str(source / "overlay2" / "a1" / "diff")
    assert mount["ReadOnly"]
    assert list((target / "overlay2" / "a1" / "diff").iterdir()) == []
    assert (target / "overlay2" / "a1" / "link").read_text() == "SHORT"
    assert (target / "overlay2" / "l" / "SHORT").readlink() == Path("../a1/diff")
    assert (target / "image").stat().st_mode & 0o777 == 0o700


def test_what_a_node_writes_is_its_own(tmp_path: Path):
    source = prepared(tmp_path)
    lay_out(source, tmp_path / "one")
    (tmp_path / "one" / "image" / "repositories.json").write_text("changed")
    lay_out(source, tmp_path / "two")
    assert (tmp_path / "two" / "image" / "repositories.json").read_text() == "{}"
    with pytest.raises(FileExistsError):
        lay_out(source, tmp_path / "two")
