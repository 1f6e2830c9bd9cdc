"""A small synchronous HTTP client of a yard, with nothing but the standard library.

Must not know the server: it shares no code with engine, journal and protocols, so that it can be
imported, and sent to other machines, without them.
"""

from jobyard.client.answer import Answer
from jobyard.client.calls import YardClient
from jobyard.client.errors import JobyardError
from jobyard.client.stream import ByteStream
from jobyard.client.token import Token

__all__ = ["Answer", "ByteStream", "JobyardError", "Token", "YardClient"]
