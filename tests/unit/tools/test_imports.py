"""The direction of imports: each wrong import is found, and the repository has none."""

import ast
from pathlib import Path

import pytest

from tools import imports


def findings_of(tmp_path: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return imports.findings(tmp_path)


def test_the_repository_imports_one_way() -> None:
    assert imports.findings(imports.ROOT) == []


def test_the_repository_is_read_at_all() -> None:
    names = {module.name for module in imports.load(imports.ROOT / "src/jobyard", "jobyard")}
    assert {"jobyard", "jobyard.build"} <= names


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/jobyard/model/job.py", "from jobyard.engine.state.yard import Yard"),
        ("src/jobyard/model/job.py", "import jobyard.wire.beanstalk"),
        ("src/jobyard/model/job.py", "from jobyard import engine"),
        ("src/jobyard/model/job.py", "from ..engine import yard"),
        ("src/jobyard/model/job.py", "def f():\n    from jobyard.server import loop"),
        ("src/jobyard/model/job.py", "if TYPE_CHECKING:\n    from jobyard.cli import main"),
        ("src/jobyard/journal/format/record.py", "from jobyard.wire import beanstalk"),
        ("src/jobyard/wire/beanstalk.py", "from jobyard.journal import record"),
        ("src/jobyard/protocols/session.py", "from jobyard.server import loop"),
        ("src/jobyard/server/loop.py", "from jobyard.cli import main"),
        ("src/jobyard/client/pool.py", "from jobyard.engine import yard"),
        ("src/jobyard/attic/old.py", ""),
        ("sim/world.py", "from jobyard.server.loop import Loop"),
    ],
)
def test_an_import_upwards_is_found(tmp_path: Path, path: str, text: str) -> None:
    (finding, *_) = findings_of(tmp_path, {path: text})
    assert finding.startswith(f"{path}:")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/jobyard/protocols/beanstalk.py", "from jobyard.protocols import bunqueue"),
        (
            "src/jobyard/protocols/beanstalk/put.py",
            "from jobyard.protocols.topics.queue.work import A",
        ),
        ("src/jobyard/protocols/glidemq_keys.py", "import jobyard.protocols.beanstalk.put"),
        ("src/jobyard/protocols/session.py", "from jobyard.protocols.beanstalk import put"),
    ],
)
def test_protocols_stay_apart(tmp_path: Path, path: str, text: str) -> None:
    assert "protocols are independent" in findings_of(tmp_path, {path: text})[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/jobyard/engine/state/yard.py", "from jobyard.engine.jobs.put import put"),
        ("src/jobyard/engine/jobs/put.py", "from jobyard.engine.topics import routers"),
        ("src/jobyard/engine/topics/routers.py", "from jobyard.engine.glidemq.add import add"),
        ("src/jobyard/engine/attic/old.py", ""),
        (
            "src/jobyard/protocols/glidemq/keyspace/key.py",
            "import jobyard.protocols.glidemq.groups.x",
        ),
    ],
)
def test_an_import_of_a_folder_that_is_not_below_is_found(
    tmp_path: Path, path: str, text: str
) -> None:
    (finding, *_) = findings_of(tmp_path, {path: text})
    assert finding.startswith(f"{path}:")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/jobyard/engine/jobs/put.py", "from jobyard.engine.state.yard import Yard"),
        ("src/jobyard/engine/jobs/put.py", "from jobyard.engine.jobs.take import offer"),
        (
            "src/jobyard/engine/state/yard.py",
            "if TYPE_CHECKING:\n    from jobyard.engine.jobs.schedule import Crons",
        ),
        ("src/jobyard/protocols/glidemq/session.py", "import jobyard.protocols.glidemq.commands.x"),
    ],
)
def test_an_import_of_a_folder_below_is_fine(tmp_path: Path, path: str, text: str) -> None:
    assert findings_of(tmp_path, {path: text}) == []


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from os import path",
        "import asyncio.events",
        "import librt.time",
        "if x:\n  import socket",
    ],
)
def test_the_world_stays_at_the_edge(tmp_path: Path, text: str) -> None:
    (finding, *_) = findings_of(tmp_path, {"src/jobyard/engine/state/yard.py": text})
    assert "may be imported only in" in finding
    assert imports.findings(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/jobyard/engine/state/yard.py", "from jobyard.journal import journal\nimport zlib"),
        ("src/jobyard/engine/state/yard.py", "from librt.strings import BytesWriter"),
        ("src/jobyard/engine/state/yard.py", "from jobyard.errors import NotFound"),
        ("src/jobyard/engine/state/yard.py", "from .heap import Heap\nfrom . import heap"),
        ("src/jobyard/protocols/beanstalk/put.py", "from jobyard.protocols.beanstalk import a"),
        ("src/jobyard/protocols/beanstalk_stats.py", "from jobyard.protocols.beanstalk import a"),
        ("src/jobyard/protocols/beanstalk.py", "from jobyard.protocols.session import Session"),
        ("src/jobyard/server/loop.py", "import os, select\nfrom jobyard.protocols import session"),
        ("src/jobyard/cli/main.py", "from jobyard import __version__\nimport os"),
        ("sim/world.py", "import random\nfrom jobyard.engine import yard"),
    ],
)
def test_an_import_downwards_is_fine(tmp_path: Path, path: str, text: str) -> None:
    assert findings_of(tmp_path, {path: text}) == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    files = {
        "src/jobyard/engine/a.py": "from jobyard.engine.b import B",
        "src/jobyard/engine/b.py": "from jobyard.engine import c",
        "src/jobyard/engine/c.py": "import jobyard.engine.a",
    }
    (finding,) = findings_of(tmp_path, files)
    assert "import cycle" in finding


def test_a_circle_for_types_alone_is_none(tmp_path: Path) -> None:
    files = {
        "src/jobyard/engine/__init__.py": "from jobyard.engine.a import A",
        "src/jobyard/engine/a.py": "from jobyard.engine.b import B",
        "src/jobyard/engine/b.py": "if TYPE_CHECKING:\n    from jobyard.engine.a import A",
    }
    assert findings_of(tmp_path, files) == []


def ring(count: int) -> dict[str, str]:
    """Return modules that import each other, one of them only for type checking."""
    files = {
        f"src/jobyard/engine/m{each}.py": f"from jobyard.engine.m{each + 1} import A"
        for each in range(count - 1)
    }
    last = f"src/jobyard/engine/m{count - 1}.py"
    return {**files, last: "if TYPE_CHECKING:\n    from jobyard.engine.m0 import A"}


def test_too_many_modules_that_import_each_other_are_found(tmp_path: Path) -> None:
    assert findings_of(tmp_path, ring(imports.KNOT_MAX)) == []
    (finding,) = findings_of(tmp_path, ring(imports.KNOT_MAX + 1))
    assert finding.startswith(f"{imports.KNOT_MAX + 1} modules import each other: ")


def test_the_bound_on_modules_that_import_each_other_is_reached() -> None:
    package = imports.load(imports.ROOT / "src/jobyard", "jobyard")
    assert len(imports.knots(package)[0]) == imports.KNOT_MAX, "lower the bound"


def test_relative_imports_get_their_full_names() -> None:
    tree = ast.parse("from ..wire import beanstalk\nfrom . import heap\nfrom .heap import Heap")
    targets = [found.target for found in imports.imports_of(tree, "jobyard.engine")]
    assert targets == [
        "jobyard.wire",
        "jobyard.wire.beanstalk",
        "jobyard.engine",
        "jobyard.engine.heap",
        "jobyard.engine.heap",
        "jobyard.engine.heap.Heap",
    ]
