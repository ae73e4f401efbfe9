"""The wheel holds every package and nothing generic."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_SHIPPED = {"tests", "benchmarks", "notebooks", "docs", "build"}


def folders_with_code() -> set[str]:
    """Folders of the root that are packages."""
    return {path.parent.name for path in ROOT.glob("*/__init__.py")} - NOT_SHIPPED


def test_every_folder_of_code_is_declared_as_a_package() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "setuptools"
    ]
    named = {f"followup_agent.{folder}" for folder in folders_with_code()} | {"followup_agent"}
    assert set(config["packages"]) == named
    assert set(config["package-dir"]) == named


def test_the_root_holds_no_stray_module() -> None:
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "state.py"}


@pytest.mark.slow
def test_the_wheel_holds_all_of_it_and_no_generic_name(tmp_path: Path) -> None:
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)  # what an earlier build left
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)],
        check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"followup_agent"}
    for folder in folders_with_code():
        for path in (ROOT / folder).glob("*.py"):
            assert f"followup_agent/{folder}/{path.name}" in names
    assert "followup_agent/py.typed" in names
    assert "followup_agent/judgement/policy.toml" in names
    data = {"worlds.yaml", "gates.toml", "report.html.j2", "states.jsonl.gz", "cases/seed.yaml"}
    assert {f"followup_agent/evals/{name}" for name in data} <= set(names)
    assert not [
        name for name in names if "test_" in name or "conftest" in name or "/tests/" in name
    ]


def test_constraints_hold_names_and_versions_only() -> None:
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        name, version = line.split("==")
        assert name.replace("-", "").replace("_", "").replace(".", "").isalnum()
        assert version[0].isdigit()


def test_the_repository_names_no_path_of_a_machine() -> None:
    """No home, no checkout; and the folder of shared data is named by tests only."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix not in TEXTS or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        for place in (str(ROOT) + "/", str(Path.home()) + "/"):
            assert place not in text, name
        assert name.startswith("tests/") or "../shared" not in text, name


TEXTS = {".py", ".md", ".toml", ".txt", ".json", ".yaml", ".ipynb", ""}
