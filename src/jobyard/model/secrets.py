"""How secrets are stored and compared: as digests, in constant time.

A presented secret is hashed first, so that timing reveals neither the position of the first wrong
byte nor the length of the stored secret.
"""

from hashlib import sha256
from hmac import compare_digest


def digest_of(secret: bytes) -> bytes:
    """Return the digest that is stored for a secret."""
    return sha256(secret).digest()


def is_digest_of(shown: bytes, digest: bytes) -> bool:
    """Return whether this is the secret with this digest."""
    return compare_digest(digest_of(shown), digest)


def is_one_of(shown: bytes, digests: list[bytes]) -> bool:
    """Return whether this is the secret of any of these digests; all of them are compared."""
    digest = digest_of(shown)
    is_known = False
    for one in digests:
        is_known = compare_digest(digest, one) or is_known
    return is_known
