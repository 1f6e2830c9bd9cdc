"""The record keys of one topic: digests of 16 bytes, with the seq of each and when it was written.

A key is not stored, only its digest of 128 bits, made by BLAKE2b: two keys of one topic with the
same digest would count as one key, but even among 2^40 keys the odds are below one in 10^14, and
finding a pair on purpose is infeasible. Keys stand in pages in the order of their age, as columns
of numbers; an index of small buckets (linear hashing, see `index/sharded_dict.py`) has eight bytes
for each: the number of the key and 15 bits of its digest. That makes about 54 bytes a key, and no
step that moves more than one bucket.

Knows no topic, no clock and no journal. Invariant: times rise with the numbers of keys, except
while the journal is read back; `count` is the number of keys in the index.
"""

from array import array
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

if TYPE_CHECKING:
    from jobyard.model.index.item import Item

PAGE_KEYS: Final = 1024
# Keys in each bucket on average, and below which two of them become one.
BUCKET_KEYS: Final = 16
_SPARSE_KEYS: Final = 4
DIGEST_SIZE: Final = 16
_REDRIVE: Final = b"redrive"
# What a key counts in the memory budget, rounded up.
KEY_MEMORY: Final = 64

# An item of a bucket: 48 bits of a number, and 15 bits of the digest above them.
_ITEM_SIZE: Final = 8
_NUMBER_BITS: Final = 48
_NUMBER_MASK: Final = (1 << 48) - 1
_TAG_MASK: Final = 0x7FFF


def digest_of(key: str) -> bytes:
    """Return the digest of a key."""
    return blake2b(key.encode(), digest_size=DIGEST_SIZE).digest()


def redrive_digest(key: str, source: str, number: i64) -> bytes:
    """Return the digest of the key under which one letter, or one dead job, is redriven.

    `source` names what the number is of. No key of a record has the same digest.
    """
    text = f"{source}\0{int(number)}\0{key}"
    return blake2b(text.encode(), digest_size=DIGEST_SIZE, person=_REDRIVE).digest()


@final
class KeyPage:
    """Up to PAGE_KEYS keys with consecutive numbers, oldest first."""

    def __init__(self) -> None:
        # Two numbers for each digest.
        self.digests: array[int] = array("q")
        self.seqs: array[int] = array("q")
        # When each was written, on the clock of this boot.
        self.at: array[int] = array("q")
        # The segment that has the record of each, 0 if it is only in memory.
        self.segments: array[int] = array("I")


@final
class KeyTable:
    """The keys of one topic."""

    def __init__(self, name: str, window_ms: i64) -> None:
        # The name of the topic.
        self.name: str = name
        # The number in the journal, 0 until there is a record of it.
        self.number: i64 = 0
        self.window_ms: i64 = window_ms
        # Keys written at this time or earlier are not valid, whatever the window is now.
        self.floor_ms: i64 = -(1 << 62)
        # Fires when the oldest key is no longer valid.
        self.alarm: Item | None = None
        self.count: i64 = 0
        self._pages: list[KeyPage] = []
        # The number of the first key of the first page, of the oldest key, and of the next one.
        self._base: i64 = 0
        self._oldest: i64 = 0
        self._next: i64 = 0
        self._buckets: list[bytes] = [b""]
        # The bits of a digest that choose a bucket; those beyond the last are not split off yet.
        self._mask: i64 = 0

    # -- looking up ------------------------------------------------------------------------------

    def valid_after(self, now_ms: i64) -> i64:
        """Return the time after which a key must have been written to be valid now."""
        return max(now_ms - self.window_ms, self.floor_ms)

    def find(self, digest: bytes) -> i64:
        """Return the number of a key, -1 if there is none with this digest."""
        high = read_i64_le(digest, 0)
        low = read_i64_le(digest, 8)
        bucket = self._buckets[self._bucket_of(high)]
        tag = low & _TAG_MASK
        at: i64 = 0
        end: i64 = len(bucket)
        while at < end:
            item = read_i64_le(bucket, at)
            if item >> _NUMBER_BITS == tag:
                number = item & _NUMBER_MASK
                page = self._page(number)
                slot = 2 * (number % PAGE_KEYS)
                if page.digests[slot] == high and page.digests[slot + 1] == low:
                    return number
            at += _ITEM_SIZE
        return -1

    def seq_if_valid(self, digest: bytes, valid_after: i64) -> i64:
        """Return the seq of a key written after a time; 0 if there is none, -1 if it is older."""
        number = self.find(digest)
        if number < 0:
            return 0
        page = self._page(number)
        slot = number % PAGE_KEYS
        return page.seqs[slot] if page.at[slot] > valid_after else -1

    def seq_of(self, number: i64) -> i64:
        """Return the seq of a key by its number."""
        return self._page(number).seqs[number % PAGE_KEYS]

    def at_of(self, number: i64) -> i64:
        """Return when a key was written, by its number."""
        return self._page(number).at[number % PAGE_KEYS]

    def segment_of(self, number: i64) -> i64:
        """Return the segment that has the record of a key, by its number."""
        return self._page(number).segments[number % PAGE_KEYS]

    def set_segment(self, number: i64, segment: i64) -> None:
        """Set the segment that has the record of a key."""
        self._page(number).segments[number % PAGE_KEYS] = segment

    def valid_count(self, now_ms: i64) -> i64:
        """Return how many keys are valid; only those may have been replaced that are not."""
        valid_after = self.valid_after(now_ms)
        low = self._oldest
        high = self._next
        while low < high:
            middle = (low + high) // 2
            if self.at_of(middle) > valid_after:
                high = middle
            else:
                low = middle + 1
        return self._next - low

    def oldest_ms(self) -> i64:
        """Return when the oldest key was written; there must be one."""
        return self.at_of(self._oldest)

    def has_any(self) -> bool:
        """Return whether there are keys, or places of replaced ones, to remove by age."""
        return self._oldest < self._next

    # -- adding ----------------------------------------------------------------------------------

    def put_all(self, digests: list[bytes], seqs: list[int], at_ms: i64, segment: i64) -> None:
        """Add keys that are not in the index, all written now."""
        if self._next > self._oldest:
            at_ms = max(at_ms, self.at_of(self._next - 1))
        start: i64 = 0
        count: i64 = len(digests)
        while start < count:
            page = self._open_page()
            end = min(count, start + PAGE_KEYS - len(page.seqs))
            some = digests[start:end]
            items = BytesWriter()
            for digest in some:
                tag = read_i64_le(digest, 8) & _TAG_MASK
                write_i64_le(items, tag << _NUMBER_BITS | (self._next + len(items) // _ITEM_SIZE))
            page.digests.frombytes(b"".join(some))
            page.seqs.fromlist(seqs[start:end])
            page.at.extend(array("q", [at_ms]) * len(some))
            page.segments.extend(array("I", [segment]) * len(some))
            self._next += len(some)
            self._enter(some, items.getvalue())
            start = end

    def put_back(self, digest: bytes, seq: i64, at_ms: i64, segment: i64) -> None:
        """Add a key or replace it, in any order; only while the journal is read back."""
        number = self.find(digest)
        if number >= 0:
            self._cut(number)
        page = self._open_page()
        tag = read_i64_le(digest, 8) & _TAG_MASK
        item = BytesWriter()
        write_i64_le(item, tag << _NUMBER_BITS | self._next)
        page.digests.frombytes(digest)
        page.seqs.append(seq)
        page.at.append(at_ms)
        page.segments.append(segment)
        self._next += 1
        self._enter([digest], item.getvalue())

    def _enter(self, digests: list[bytes], items: bytes) -> None:
        """Add keys to the index."""
        buckets = self._buckets
        at: i64 = 0
        for digest in digests:
            index = self._bucket_of(read_i64_le(digest, 0))
            buckets[index] += items[at : at + _ITEM_SIZE]
            at += _ITEM_SIZE
            self.count += 1
            if self.count > len(buckets) * BUCKET_KEYS:
                self._split()

    def _open_page(self) -> KeyPage:
        """Return the page of the next key."""
        if self._next == self._base + len(self._pages) * PAGE_KEYS:
            self._pages.append(KeyPage())
        return self._pages[-1]

    # -- removing --------------------------------------------------------------------------------

    def remove_oldest(self) -> i64:
        """Remove the oldest key; return its segment, -1 if it was replaced before."""
        number = self._oldest
        segment = self.segment_of(number) if self._cut(number) else -1
        self._oldest = number + 1
        if self._oldest == self._next:
            self._pages.clear()
            # Numbers stay aligned with pages.
            self._base = self._oldest = self._next = (self._next // PAGE_KEYS + 1) * PAGE_KEYS
        elif self._oldest == self._base + PAGE_KEYS:
            del self._pages[0]
            self._base += PAGE_KEYS
        return segment

    def take_out(self, digest: bytes) -> i64:
        """Take an expired key out of the index; return its segment, -1 if there is none."""
        number = self.find(digest)
        return self.segment_of(number) if number >= 0 and self._cut(number) else -1

    def _cut(self, number: i64) -> bool:
        """Remove a key from the index; False if it is not there."""
        page = self._page(number)
        slot = 2 * (number % PAGE_KEYS)
        high: i64 = page.digests[slot]
        low: i64 = page.digests[slot + 1]
        index = self._bucket_of(high)
        bucket = self._buckets[index]
        item = (low & _TAG_MASK) << _NUMBER_BITS | number
        at: i64 = 0
        while at < len(bucket):
            if read_i64_le(bucket, at) == item:
                self._buckets[index] = bucket[:at] + bucket[at + _ITEM_SIZE :]
                self.count -= 1
                if len(self._buckets) > 1 and self.count < len(self._buckets) * _SPARSE_KEYS:
                    self._join()
                return True
            at += _ITEM_SIZE
        return False

    # -- pages and buckets -----------------------------------------------------------------------

    def _page(self, number: i64) -> KeyPage:
        return self._pages[(number - self._base) // PAGE_KEYS]

    def _bucket_of(self, high: i64) -> i64:
        index = high & self._mask
        return index if index < len(self._buckets) else index & (self._mask >> 1)

    def _split(self) -> None:
        """Move about half of the keys of one bucket to a new one."""
        buckets = self._buckets
        last: i64 = len(buckets)
        if last > self._mask:
            self._mask = self._mask * 2 + 1
        first = last & (self._mask >> 1)
        bucket = buckets[first]
        staying = BytesWriter()
        moving = BytesWriter()
        at: i64 = 0
        while at < len(bucket):
            item = read_i64_le(bucket, at)
            number = item & _NUMBER_MASK
            high: i64 = self._page(number).digests[2 * (number % PAGE_KEYS)]
            write_i64_le(moving if high & self._mask == last else staying, item)
            at += _ITEM_SIZE
        buckets[first] = staying.getvalue()
        buckets.append(moving.getvalue())

    def _join(self) -> None:
        """Move the keys of the last bucket back to the one that it was split from."""
        buckets = self._buckets
        last: i64 = len(buckets) - 1
        first = last & (self._mask >> 1)
        buckets[first] += buckets.pop()
        if last == (self._mask >> 1) + 1:
            self._mask >>= 1

    # -- all of them -----------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """Return the numbers of all keys, in their order."""
        found: list[int] = []
        for bucket in self._buckets:
            at: i64 = 0
            while at < len(bucket):
                found.append(int(read_i64_le(bucket, at) & _NUMBER_MASK))
                at += _ITEM_SIZE
        found.sort()
        return found

    def digest_at(self, number: i64) -> bytes:
        """Return the digest of a key by its number."""
        slot = 2 * (number % PAGE_KEYS)
        return self._page(number).digests[slot : slot + 2].tobytes()
