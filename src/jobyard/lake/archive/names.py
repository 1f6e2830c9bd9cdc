"""How the folders and files of an archive are named.

    topic=<name>/date=<day>/<from>-<to>.<incarnation>.parquet

Names of topics are encoded as in a url, so that no name leaves its folder and any reader of such
folders decodes them; a long one ends with a hash. Numbers have leading zeros, so that names sort as
rows do. The incarnation is there because a topic that was made again has the same seqs. What begins
with an underscore is passed over by readers of Parquet.
"""

import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote

from jobyard.client.errors import bad_option

EVENTS_TOPIC: Final = "_events"
INDEX: Final = "_index"
INDEX_NEW: Final = "_index.new"
LOCK: Final = "_lock"
# The one file that is being written; the lock admits one writer.
PART: Final = "_new.parquet"
SUFFIX: Final = ".parquet"
DAY_US: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TOPIC: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")
# Of 255 bytes, which file systems allow.
_FOLDER_MAX: Final = 200
_KEPT: Final = 150
_NAME: Final = re.compile(
    r"date=\d{4,6}-\d\d-\d\d/(\d{19})-(\d{19})\.([A-Za-z0-9._~%-]{1,120})\.parquet"
)


def check_topic(topic: str) -> str:
    """Return the name of a topic that can be archived; refuse any other."""
    if topic != EVENTS_TOPIC and not _TOPIC.fullmatch(topic):
        raise bad_option("topic", f"{topic[:40]!r} is not the name of a log")
    return topic


def topic_folder(topic: str) -> str:
    """Return the name of the folder of a topic."""
    text = quote(topic, safe="")
    if len(text) > _FOLDER_MAX:
        digest = hashlib.sha256(topic.encode()).hexdigest()[:24]
        # Names have no tilde, so no other one ends like this.
        text = f"{re.sub('%.?$', '', text[:_KEPT])}~{digest}"
    return f"topic={text}"


def day_folder(day: int) -> str:
    """Return the name of the folder of a day, counted from 1970."""
    return f"date={(_EPOCH + timedelta(days=day)).date().isoformat()}"


def file_name(day: int, incarnation: str, after_seq: int, to_seq: int) -> str:
    """Return the path of a file below the folder of its topic."""
    life = quote(incarnation, safe="")
    return f"{day_folder(day)}/{after_seq:019d}-{to_seq:019d}.{life}{SUFFIX}"


def is_file_name(name: str) -> bool:
    """Return whether a path has the form of one of ours, and so stays in the folder."""
    return _NAME.fullmatch(name) is not None
