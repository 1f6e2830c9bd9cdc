"""A client that sends trivial requests over and over, and reports how long it had to wait.

Run as a program: `python -m bench.clients.pinger PORT PID`. It pings the beanstalk door of a
server and reads, before and after each ping, how much processor time that server's loop has used.
On `begin` on stdin it resets its values; on `end` it prints the longest wait and the most
processor time that any ping waited through, in milliseconds, as JSON.
"""

import json
import select
import socket
import sys
import time
from pathlib import Path
from typing import Final

PING: Final = b"list-tube-used\r\n"
PONG: Final = b"USING default\r\n"
# Pause between two pings; a stall shorter than this may be missed.
REST_S: Final = 0.0005
ANSWER_S_MAX: Final = 120.0


def loop_ms(pid: int) -> float:
    """Return the processor time that a server's first thread has used."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e6


def main() -> None:
    """Ping until stdin ends."""
    port, pid = int(sys.argv[1]), int(sys.argv[2])
    longest = {"wall_ms": 0.0, "cpu_ms": 0.0}
    with socket.create_connection(("127.0.0.1", port), ANSWER_S_MAX) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            if select.select([sys.stdin], [], [], 0)[0]:
                word = sys.stdin.readline().strip()
                if not word:
                    return
                if word == "end":
                    print(json.dumps(longest), flush=True)
                else:
                    print("{}", flush=True)
                longest = {"wall_ms": 0.0, "cpu_ms": 0.0}
            cpu, wall = loop_ms(pid), time.perf_counter()
            peer.sendall(PING)
            if peer.recv(64) != PONG:
                raise SystemExit("unexpected answer to a ping")
            waited = (time.perf_counter() - wall) * 1000
            # The kernel updates a running thread's time only at each tick, every 4 ms.
            used = min(loop_ms(pid) - cpu, waited)
            longest["wall_ms"] = max(longest["wall_ms"], waited)
            longest["cpu_ms"] = max(longest["cpu_ms"], used)
            time.sleep(REST_S)


if __name__ == "__main__":
    main()
