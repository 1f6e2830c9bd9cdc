"""Logs as tests write and read them, and a plain list of what a log should hold."""

import json
from typing import Final

from jobyard.engine.logs.erase import Erasure
from jobyard.engine.logs.logs import append, open_log, read
from jobyard.model.topic.config import TopicConfig
from jobyard.model.topic.log import Appended, LogPage, LogQuery, LogRecord, LogTopic
from tests.support.site.site import Site

MANY: Final = 1 << 40

# seq, ts, tag, node, data, meta
Record = tuple[int, int, str, str, object, object]


def config_of(**fields: object) -> TopicConfig:
    """Return a configuration with some fields set."""
    config = TopicConfig()
    for name, value in fields.items():
        assert hasattr(config, name)
        setattr(config, name, value)
    return config


def new_log(site: Site, name: str = "log", **fields: object) -> LogTopic:
    """Open a log with some fields of its configuration set."""
    return open_log(site.yard, name, config_of(**fields), site.now_ms)


def row(data: object = None, tag: str = "", node: str = "", meta: object = None) -> LogRecord:
    """Return a row of plain values."""
    text = json.dumps(data).encode()
    return LogRecord(text, b"" if meta is None else json.dumps(meta).encode(), tag, node)


def write(site: Site, log: LogTopic, *rows: LogRecord, key: str = "") -> Appended:
    """Append some rows."""
    return append(site.yard, log, list(rows), key, site.now_ms)


def page_of(  # noqa: PLR0913  all options of a reader
    site: Site,
    log: LogTopic,
    from_seq: int = 0,
    limit: int = MANY,
    max_bytes: int = MANY,
    *nodes: str,
    tags: bool = False,
    meta: bool = True,
    data: bool = True,
) -> LogPage:
    """Read a page."""
    query = LogQuery(
        from_seq,
        limit,
        max_bytes,
        nodes,
        include_tags=tags,
        include_meta=meta,
        include_data=data,
    )
    return read(site.yard, log, query, site.now_ms)


def items(page: LogPage) -> list[dict[str, object]]:
    """Return the records of a page as values."""
    found: list[dict[str, object]] = json.loads(b"[" + b"".join(page.records) + b"]")
    assert len(found) == page.count
    return found


def seqs(page: LogPage) -> list[object]:
    """Return the seqs of a page."""
    return [item["$seq"] for item in items(page)]


def contents(site: Site, log: LogTopic) -> list[Record]:
    """Return all records of a log."""
    return [
        (
            int(str(item["$seq"])),
            int(str(item["$ts"])),
            str(item.get("$tag", "")),
            str(item.get("$node", "")),
            item["data"],
            item.get("meta"),
        )
        for item in items(page_of(site, log, tags=True))
    ]


def delete_below(site: Site, log: LogTopic, seq: int) -> int:
    """Delete records older than a seq."""
    return _delete(site, Erasure(site.yard, log, seq, "", is_prefix=False, has_match=False))


def delete_tagged(
    site: Site, log: LogTopic, tag: str, *, prefix: bool = False, before: int = -1
) -> int:
    """Delete records with a tag, or with a prefix of a tag."""
    return _delete(site, Erasure(site.yard, log, before, tag, is_prefix=prefix, has_match=True))


def _delete(site: Site, erasure: Erasure) -> int:
    assert erasure.step(MANY, site.now_ms) < MANY
    return int(erasure.count)
