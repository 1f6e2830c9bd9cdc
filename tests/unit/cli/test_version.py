import re

from jobyard import __version__
from jobyard.cli.version import drop_in_version_text, version_text


def test_the_version_says_what_is_running() -> None:
    shape = (
        rf"jobyard {re.escape(__version__)} \((plain|compiled|mixed), Python 3\.[0-9]+\.[0-9]+.*\)"
    )
    assert re.fullmatch(shape, version_text())


def test_scripts_find_the_originals_name_and_version_in_the_drop_ins() -> None:
    words = drop_in_version_text().split()
    assert words[0] == "beanstalkd"
    assert re.fullmatch(r"[0-9]+\.[0-9]+", words[1])
    assert __version__ in drop_in_version_text()
