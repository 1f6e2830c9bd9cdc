"""The bytes of HTTP and WebSocket as a client reads and writes them: heads, chunks, frames."""


def head_of(head: bytes) -> tuple[int, dict[str, str]]:
    """Return the status and the headers of an answer."""
    first, *lines = head.decode("latin-1").split("\r\n")
    assert first.startswith("HTTP/1.1 "), first
    pairs = (line.partition(": ") for line in lines)
    return int(first.split(" ")[1]), {name.lower(): value for name, _, value in pairs}


def dechunked(data: bytes) -> tuple[bytes, bool]:
    """Return the content of complete chunks, and whether the last chunk is among them."""
    content = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        end = int(size, 16)
        assert rest[end : end + 2] == b"\r\n"
        content += rest[:end]
        data = rest[end + 2 :]
        if end == 0:
            assert not data
            return content, True
    return content, False


def handshake() -> dict[str, str]:
    """Return the headers that request a WebSocket."""
    return {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }


def ws_frame(opcode: int, content: bytes, *, is_last: bool = True) -> bytes:
    """Return a frame as a client sends it."""
    mask = b"\x01\x02\x03\x04"
    size = len(content)
    head = bytes([opcode | (0x80 if is_last else 0)])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([0x80 | 127]) + size.to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(content))


def ws_frames(data: bytes) -> list[tuple[int, bytes]]:
    """Return the opcodes and contents of frames as a server sends them."""
    frames: list[tuple[int, bytes]] = []
    while data:
        assert data[0] & 0xF0 == 0x80
        at, size = 2, data[1]
        if size >= 126:
            at = 4 if size == 126 else 10
            size = int.from_bytes(data[2:at], "big")
        assert len(data) >= at + size
        frames.append((data[0] & 0x0F, data[at : at + size]))
        data = data[at + size :]
    return frames
