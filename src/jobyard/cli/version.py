"""What `--version` says: Jobyard's own version, whether it is compiled, and the Python below."""

import platform
from typing import Final

from jobyard import __version__, build

# The version of the original whose protocol and statistics layout the beanstalk door keeps.
BEANSTALKD_VERSION: Final = "1.13"


def version_text() -> str:
    """The line for `jobyard --version`."""
    return f"jobyard {__version__} ({build.kind()}, Python {platform.python_version()})"


def drop_in_version_text() -> str:
    """The line for `jobyard beanstalkd -v`: scripts take the second word as the version."""
    return f"beanstalkd {BEANSTALKD_VERSION} (jobyard {__version__})"
