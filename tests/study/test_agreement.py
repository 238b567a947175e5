"""One list says what belongs to a machine: such a setting is refused in a study file, and changes
no study's hash; every other setting does.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from config.errors import UserError
from config.settings import MACHINE_SETTINGS, Settings
from config.study import read_study
from study.agreement import study_hash

NAMES = [f.name for f in fields(Settings)]
CONTENT = {"corpus": "ab" * 32}


def _other(name: str) -> object:
    """A value that is not the default."""
    value = getattr(Settings(), name)
    if isinstance(value, bool):
        return not value
    return {"x": 1} if name == "options" else value + 1 if not isinstance(value, str) else "other"


def test_the_list_names_settings() -> None:
    assert set(NAMES) >= MACHINE_SETTINGS


@pytest.mark.parametrize("name", NAMES)
def test_the_hash_of_a_study_leaves_out_what_is_a_machines(name: str) -> None:
    changed = replace(Settings(), **{name: _other(name)})  # type: ignore[arg-type]
    same = study_hash(changed, CONTENT) == study_hash(Settings(), CONTENT)
    # The corpus is compared by its content.
    assert same == (name in MACHINE_SETTINGS or name == "corpus")


def test_the_hash_is_the_one_of_earlier_versions() -> None:
    """Consents and journals on silos' disks name it."""
    assert study_hash(Settings(), CONTENT).hex() == (
        "1761762ce99502183037653c639481b7ae635aa0681a278a83093db6ebfa3b07"
    )
    private = Settings(dp="record", epsilon=8.0, options={"mu": 0.1})
    assert study_hash(private, CONTENT).hex() == (
        "c648b58e5bf57a95a856270e8c3d94aa3d58a7d76bed3fe38a99c823f92091e5"
    )
    assert study_hash(replace(private, epsilon=3.0), CONTENT) == study_hash(private, CONTENT)
    assert study_hash(replace(private, dp="silo"), CONTENT) != study_hash(
        replace(private, dp="silo", epsilon=3.0), CONTENT
    )


@pytest.mark.parametrize("name", sorted(MACHINE_SETTINGS))
def test_a_study_file_names_no_setting_of_a_machine(name: str, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    value = getattr(Settings(), name)  # the default is refused as well
    file.write_text(
        f'title = "A"\n{name} = {value if not isinstance(value, str) else repr(value)}\n'
    )
    with pytest.raises(UserError, match=f'"{name}" belongs to one machine; it has no place in'):
        read_study(file)


def test_a_study_file_may_name_a_built_in_corpus(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text('title = "A"\ncorpus = "distant"\nrounds = 3\n')
    assert read_study(file).settings == replace(Settings(), corpus="distant", rounds=3)
