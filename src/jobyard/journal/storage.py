"""The one road to a disk: plain names inside one directory.

The seam the simulator replaces. It is called once per batch, not once per job, so it may be slow to
call. `write` reaches the page cache, `sync` the disk; an entry made by `create`, `rename` or
`unlink` is safe only after `sync_directory`.
"""

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Storage:
    """Files of one directory. Errors are StorageFull and StorageFailed, nothing else."""

    def names(self) -> list[str]:
        """Return the names of all files, in no order."""
        raise NotImplementedError

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        raise NotImplementedError

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return up to `size` bytes; fewer only past the end of the file."""
        raise NotImplementedError

    def create(self, name: str, size: int) -> None:
        """Make a file of `size` zero bytes with all its space reserved, or raise StorageFull."""
        raise NotImplementedError

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Write all of `data`, or raise; a file that was cut short grows by it."""
        raise NotImplementedError

    def sync(self, name: str) -> None:
        """Return once every byte written to the file is on disk; never retried after a failure."""
        raise NotImplementedError

    def truncate(self, name: str, size: int) -> None:
        """Give back the space past `size`."""
        raise NotImplementedError

    def rename(self, old: str, new: str) -> None:
        """Give a file a name that is not in use."""
        raise NotImplementedError

    def unlink(self, name: str) -> None:
        """Remove a file."""
        raise NotImplementedError

    def sync_directory(self) -> None:
        """Return once every create, rename and unlink is on disk."""
        raise NotImplementedError
