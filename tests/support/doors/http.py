"""The HTTP port with bunqueue's API, without a socket, over a yard in memory.

`BareHttp` is the bunqueue door of one boot together with the port.
"""

from jobyard.journal.storage import Storage
from jobyard.protocols.bunqueue.http.api import BunqueueArea, install
from jobyard.protocols.http.door import HttpDoor, Stopwatch
from jobyard.protocols.http.entrance import HttpEntrance
from jobyard.protocols.http.routes import Routes
from tests.support.clients.http import BunqueueHttpClient
from tests.support.doors.bunqueue import BareBunqueue


class BareHttp(BareBunqueue):
    """Yard, door and port of one boot."""

    def __init__(
        self, storage: Storage | None = None, origin: str = "*", *, ids_ahead: bool = False
    ) -> None:
        super().__init__(storage, ids_ahead=ids_ahead)
        self.area = BunqueueArea(self.door)
        self.routes = Routes(self.area)
        install(self.routes, self.area)
        self.http = HttpDoor(self.yard, self.routes, Stopwatch())
        self.http.pages.name_origins(origin)
        self.http_entrance = HttpEntrance(self.http)

    def call(self) -> BunqueueHttpClient:
        """Open a connection to the port."""
        return BunqueueHttpClient(self, self.http_entrance)
