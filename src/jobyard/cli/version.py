"""The output of `--version`: the versions of Jobyard and Python, and whether it is compiled."""

import platform
from typing import Final

from jobyard import __version__, build

# The version of beanstalkd whose protocol and statistics layout the beanstalk door implements.
BEANSTALKD_VERSION: Final = "1.13"


def version_text() -> str:
    """Return the line for `jobyard --version`."""
    return f"jobyard {__version__} ({build.kind()}, Python {platform.python_version()})"


def drop_in_version_text() -> str:
    """Return the line for `jobyard beanstalkd -v`; scripts read the second word as the version."""
    return f"beanstalkd {BEANSTALKD_VERSION} (jobyard {__version__})"
