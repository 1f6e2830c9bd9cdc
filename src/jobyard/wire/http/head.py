"""The header lines of a request, as httptools finds them one by one."""

from typing import Final, final

from mypy_extensions import i64

# Looking a name up costs a third of making it lower case and decoding it.
_USUAL_NAMES: Final = {
    spelled: name.decode()
    for name in (
        *(b"host", b"content-length", b"content-type", b"user-agent", b"accept", b"connection"),
        *(b"accept-encoding", b"authorization", b"transfer-encoding", b"origin", b"expect"),
        *(b"x-api-key", b"idempotency-key", b"last-event-id", b"cache-control", b"upgrade"),
    )
    for spelled in (name, name.title())
}


@final
class HeadLines:
    """The callbacks of httptools while it reads a head. Holds no reader, to avoid a cycle."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.headers_count: i64 = 0
        self.is_host_repeated = False
        self.is_complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Checked later: when this is called depends on how the bytes were split."""
        self.headers_count += 1
        key = _USUAL_NAMES.get(name)
        if key is None:
            key = name.lower().decode("latin-1")
        text = value.strip(b" \t").decode("latin-1")
        if key in self.headers:
            self.headers[key] += ", " + text
            if key == "host":
                self.is_host_repeated = True
        else:
            self.headers[key] = text

    def on_headers_complete(self) -> None:
        """Note that httptools found the end of the head where we did."""
        self.is_complete = True
