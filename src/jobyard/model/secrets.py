"""How secrets are kept and compared: as digests, in the same time whatever is shown.

What is shown is hashed first, so that neither the place of the first wrong byte nor the length of a
secret can be told by the time it takes.
"""

from hashlib import sha256
from hmac import compare_digest


def digest_of(secret: bytes) -> bytes:
    """Return what is kept of a secret."""
    return sha256(secret).digest()


def is_digest_of(shown: bytes, digest: bytes) -> bool:
    """Tell whether what is shown is the secret of which this is kept."""
    return compare_digest(digest_of(shown), digest)


def is_one_of(shown: bytes, digests: list[bytes]) -> bool:
    """Tell whether what is shown is a secret of which one of these is kept; all are compared."""
    digest = digest_of(shown)
    is_known = False
    for one in digests:
        is_known = compare_digest(digest, one) or is_known
    return is_known
