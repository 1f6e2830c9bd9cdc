"""Damage anywhere in a file of an archive is found, with the name of the file."""

import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from jobyard.client import JobyardError, YardClient
from jobyard.client.errors import Code
from jobyard.lake.archive import Archive, archive, verify
from jobyard.lake.archive.blocks import BLOCK_BYTES, CheckedFile
from tests.support.clients.archives import WrittenTopic, files_of
from tests.support.servers.http import HttpYard, Topics


@pytest.fixture(scope="module")
def made(yard: HttpYard, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of two files."""
    folder = tmp_path_factory.mktemp("archive")
    topics = Topics(yard.address)
    topic = WrittenTopic(topics, "damaged")
    with YardClient(yard.url) as client:
        for _ in range(2):
            topic.fill(60)
            archive(client, "damaged", folder)
    topics.close()
    return folder


def read_all(folder: Path) -> int:
    found = Archive(folder, "damaged")
    return sum(
        batch.num_rows
        for entry in found.index().files
        for batch in found.rows(entry, entry.after_seq, entry.to_seq)
    )


def damage_of(call: Callable[[Path], object], folder: Path) -> JobyardError:
    with pytest.raises(JobyardError) as caught:
        call(folder)
    assert caught.value.code == Code.ARCHIVE_DAMAGED
    assert len(str(caught.value).splitlines()) <= 3
    return caught.value


def test_a_flipped_bit_anywhere_in_a_file_is_found(made: Path) -> None:
    assert read_all(made) == 120
    file = files_of(made, "damaged")[1]
    whole = file.read_bytes()
    drawn = random.Random(3)
    try:
        # Each byte once would take long, and shows no more: these are all kinds of places.
        edges = [*range(16), *range(len(whole) - 16, len(whole))]
        for at in [*edges, *drawn.sample(range(len(whole)), 120)]:
            spoilt = bytearray(whole)
            spoilt[at] ^= 1 << drawn.randrange(8)
            file.write_bytes(spoilt)
            for call in (verify, read_all):
                assert str(file) in damage_of(call, made).message, at
    finally:
        file.write_bytes(whole)
    verify(made)


@pytest.mark.parametrize("call", [verify, read_all])
@pytest.mark.parametrize("change", ["cut", "longer", "empty", "missing", "other"])
def test_a_file_that_is_another_is_found(
    made: Path, change: str, call: Callable[[Path], object]
) -> None:
    first, file = files_of(made, "damaged")
    whole = file.read_bytes()
    try:
        if change == "missing":
            file.unlink()
        else:
            file.write_bytes(
                {"cut": whole[:-1], "longer": whole + b"\0", "empty": b""}.get(
                    change, first.read_bytes()
                )
            )
        error = damage_of(call, made)
        assert str(file) in error.message
        assert error.detail["file"] == str(file)
        assert ("is missing" in error.message) == (change == "missing")
    finally:
        file.write_bytes(whole)


def test_all_damaged_files_are_named(made: Path) -> None:
    files = files_of(made, "damaged")
    kept = [file.read_bytes() for file in files]
    for file in files:
        file.unlink()
    error = damage_of(verify, made)
    assert error.detail["files"] == [str(file) for file in files]
    for file, whole in zip(files, kept, strict=True):
        file.write_bytes(whole)


@pytest.mark.parametrize("call", [verify, read_all])
def test_a_damaged_list_is_found(made: Path, call: Callable[[Path], object]) -> None:
    (path,) = made.glob("topic=*/_index")
    whole = path.read_bytes()
    try:
        for at in (0, 20, 40, len(whole) // 2, len(whole) - 1):
            spoilt = bytearray(whole)
            spoilt[at] ^= 1
            path.write_bytes(spoilt)
            assert "_index" in damage_of(call, made).message
    finally:
        path.write_bytes(whole)


def test_a_list_that_is_missing_is_found(made: Path, client: YardClient) -> None:
    (path,) = made.glob("topic=*/_index")
    whole = path.read_bytes()
    path.unlink()
    try:
        assert "_index is missing" in damage_of(verify, made).message
        with pytest.raises(JobyardError) as caught:
            archive(client, "damaged", made)
        assert "_index is missing" in caught.value.message
    finally:
        path.write_bytes(whole)


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    for call in (verify, read_all):
        with pytest.raises(JobyardError) as caught:
            call(tmp_path / "none")
        assert caught.value.code == Code.ARCHIVE_NOT_FOUND


def test_blocks_are_checked_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = random.Random(1).randbytes(3 * BLOCK_BYTES + 10)
    path.write_bytes(content)
    sums = [
        zlib.crc32(content[at : at + BLOCK_BYTES]) for at in range(0, len(content), BLOCK_BYTES)
    ]
    with CheckedFile(path, len(content), sums) as file:
        for begin, size in ((0, 5), (BLOCK_BYTES - 3, 6), (3 * BLOCK_BYTES, 100), (17, -1)):
            file.seek(begin)
            end = None if size < 0 else begin + size
            assert file.read(size) == content[begin:end]
        assert file.read(5) == b""
    spoilt = bytearray(content)
    spoilt[BLOCK_BYTES + 1] ^= 4
    path.write_bytes(spoilt)
    with CheckedFile(path, len(content), sums) as file, pa.PythonFile(file, mode="r") as arrow:
        assert arrow.read(BLOCK_BYTES) == content[:BLOCK_BYTES]
        # Through Arrow, as files are read.
        with pytest.raises(JobyardError, match="is damaged between bytes 1048576 and 2097152"):
            arrow.read(1)
