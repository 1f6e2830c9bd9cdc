from jobyard.model.glidemq.subscriptions import Delivery, Subscription
from tests.support.site.site import NOW_MS
from tests.support.site.yard import OpenYard


def test_only_so_many_idle_consumers_are_remembered() -> None:
    subscription = Subscription(b"g", 0)
    subscription.give(Delivery(7, OpenYard().put(), b"busy", NOW_MS))
    subscription.note_seen(b"busy", NOW_MS)
    for number in range(2500):
        subscription.note_seen(b"c%d" % number, NOW_MS + number)
        subscription.note_seen(b"faithful", NOW_MS + number)
    assert len(subscription.consumers) <= 2000
    assert {b"busy", b"faithful", b"c2499"} <= set(subscription.consumers)
    assert b"c0" not in subscription.consumers
