"""The facts the process reports about itself."""

import os
import re
import time

from jobyard.server.process_facts import InfoFacts, ProcessFacts


def test_the_process_and_its_machine() -> None:
    facts = ProcessFacts()
    name = os.uname()
    assert facts.pid() == os.getpid()
    assert facts.machine() == (name.nodename, name.version, name.machine)


def test_processor_time_only_grows() -> None:
    facts = ProcessFacts()
    before = facts.cpu_times()
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass
    assert sum(facts.cpu_times()) > sum(before)


def test_no_client_takes_the_id_for_a_number() -> None:
    """All digits, or digits with one e, would read as a number in YAML."""
    ids = {ProcessFacts().instance_id() for _ in range(200)}
    assert len(ids) == 200
    for one in ids:
        assert re.fullmatch(r"[0-9a-f]{16}", one)
        assert not re.fullmatch(r"[0-9]+(e[0-9]+)?", one)
    facts = ProcessFacts()
    assert facts.instance_id() == facts.instance_id()


def test_the_glidemq_door_tells_the_same() -> None:
    facts = ProcessFacts()
    told = InfoFacts(facts, 6379)
    assert (told.pid(), told.port(), told.machine()) == (os.getpid(), 6379, facts.machine())
    assert told.memory_bytes() > 1 << 20
    assert sum(told.cpu_times()) > 0
    assert re.fullmatch("[0-9a-f]{40}", told.run_id())
    assert told.run_id() != InfoFacts(facts, 0).run_id()
