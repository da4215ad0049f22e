"""Draw the layers of the package, and list its files, for docs/architecture.md.

    python tools/architecture.py

Layers are read from pyproject.toml, where import-linter reads them, and what a file holds from the first sentence of
its docstring. `tests/project/test_docs.py` checks that the page and the picture are what this writes.
"""

from __future__ import annotations

import ast
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tightset"
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "figures" / "layers.svg"
BEGIN, END = "<!-- files: written by tools/architecture.py -->", "<!-- end of files -->"

WIDTH, ROW, GAP, EDGE = 760, 44, 8, 10


def layers() -> list[list[str]]:
    """From above to below; parts of a layer do not import each other."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [layer.split(" | ") for layer in settings[0]["layers"]]


def sentence(path: Path) -> str:
    """The first of a file's docstring."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].split())
    text = text.replace("``", "`")
    first = text.split(". ")[0].rstrip(".")
    return first[:1].upper() + first[1:]


def _counted(files: int) -> str:
    return f"{files} file{'s' if files > 1 else ''}"


def picture() -> str:
    """A box for every part, in rows; a part may import what lies below it."""
    rows = layers()
    height = 2 * EDGE + len(rows) * ROW + (len(rows) - 1) * GAP
    label = "The layers of tightset: each may import what lies below it"
    box = f'viewBox="0 0 {WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" aria-label="{label}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#f6f8fa"/>',
    ]
    for at, row in enumerate(rows):
        y = EDGE + at * (ROW + GAP)
        width = (WIDTH - 2 * EDGE - (len(row) - 1) * GAP) / len(row)
        for place, name in enumerate(row):
            x = EDGE + place * (width + GAP)
            folder = PACKAGE / name
            about = sentence(folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")).replace("`", "")
            files = sum(path.name != "__init__.py" for path in folder.rglob("*.py")) or 1
            room = int((width - 20) / 6.2)  # letters
            shown = about if len(about) <= room else f"{about[: about.rfind(' ', 0, room - 2)]} …"
            grey = 'font-size="11" fill="#57606a"'
            bold = 'font-size="14" font-weight="bold" fill="#1f2328"'
            parts += [
                f'<rect x="{x:g}" y="{y}" width="{width:g}" height="{ROW}" rx="5" fill="#fff" stroke="#57606a"/>',
                f'<text x="{x + 10:g}" y="{y + 18}" {bold}>{name}</text>',
                f'<text x="{x + width - 10:g}" y="{y + 18}" text-anchor="end" {grey}>{_counted(files)}</text>',
                f'<text x="{x + 10:g}" y="{y + 35}" {grey}>{escape(shown)}</text>',
            ]
    return "\n".join([*parts, "</svg>", ""])


def listing() -> str:
    """Every folder, and every file with what it holds, in the order of the layers."""
    found = []
    for name in [one for layer in layers() for one in layer]:
        folder = PACKAGE / name
        if not folder.is_dir():
            found.append(f"**`{name}.py`** {sentence(folder.with_suffix('.py'))}.\n")
            continue
        found.append(f"**`{name}/`** {sentence(folder / '__init__.py')}.\n")
        found += [
            f"- `{path.name}`: {sentence(path)}." for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"
        ]
        found.append("")
    return "\n".join(found).rstrip() + "\n"


def page() -> str:
    before, rest = PAGE.read_text().split(BEGIN)
    return f"{before}{BEGIN}\n\n{listing()}\n{END}{rest.split(END)[1]}"


def main() -> None:
    PICTURE.write_text(picture())
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
