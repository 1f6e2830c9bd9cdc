"""docs/modules.md: every module of the package with the first sentence of its charter.

The page is generated, so that it cannot lie: `python -m tools.module_map` writes it, `--check`
only says whether it is current. Reads sources as syntax trees and imports nothing of them.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = Path("docs/modules.md")
HEAD: Final = """# Modules

Every module of the package, with the first sentence of its docstring. Folders of a room are listed
from the lowest layer to the highest where there is an order ([architecture.md](architecture.md)).
`make fmt` writes this page; `make lint` checks that it is current.
"""
# Rooms in the order of their imports.
ROOMS: Final = (
    "model",
    "wire",
    "journal",
    "engine",
    "protocols",
    "server",
    "cli",
    "client",
    "spark",
    "",
)


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring as one line."""
    first = " ".join(text.strip().split("\n\n")[0].split())
    match = re.match(r".*?\.(?=\s|$)", first)
    sentence = (match.group(0) if match else first).rstrip(".")
    return sentence.replace("|", "\\|")


def charter(path: Path) -> str:
    """Return what a module says of itself; empty if it says nothing."""
    if not path.is_file():
        return ""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def folders(package: Path) -> Iterator[Path]:
    """Yield the folders of the package, room by room."""
    for room in ROOMS:
        place = package / room
        yield place
        if room:
            yield from sorted(each for each in place.rglob("*") if (each / "__init__.py").is_file())


def page(root: Path) -> str:
    """Return the whole page."""
    package = root / "src" / "jobyard"
    parts = [HEAD]
    for folder in folders(package):
        modules = sorted(each for each in folder.glob("*.py") if each.name != "__init__.py")
        name = str(folder.relative_to(package)) if folder != package else "beside the rooms"
        about = first_sentence(charter(folder / "__init__.py")) if folder != package else ""
        parts.append(f"\n## {name}\n" + (f"\n{about}.\n" if about else ""))
        if modules:
            parts.append("\n| module | holds |\n|---|---|\n")
            parts += [f"| `{each.stem}` | {first_sentence(charter(each))} |\n" for each in modules]
    return "".join(parts)


def main() -> int:
    """Write the page, or say that it is stale."""
    text = page(ROOT)
    place = ROOT / PAGE
    if "--check" not in sys.argv:
        place.write_text(text, encoding="utf-8")
        return 0
    if place.is_file() and place.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{PAGE} is stale: run `make fmt`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
