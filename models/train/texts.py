"""Reads the texts of text/: sections, each under a line that begins with "# " and names it."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "text"


def sections(name):
    """{name of a section: its lines}, without what stands behind a colon in its heading, and without blank lines at its end."""
    found, at = {}, None
    for line in (FOLDER / name).read_text().splitlines():
        if line.startswith("# "):
            at = found[line[2:].partition(":")[0]] = []
        else:
            at.append(line)
    return {key: "\n".join(lines).rstrip("\n").split("\n") for key, lines in found.items()}


def rows(lines):
    return [tuple(cell.strip() for cell in line.split("|")) for line in lines]


def words(lines):
    """Cells of all lines in one list."""
    return [cell for row in rows(lines) for cell in row]


def blocks(lines):
    """Lists of lines that stand together."""
    return [block.split("\n") for block in "\n".join(lines).split("\n\n")]


def exchanges(lines):
    """A block each: questions, the plain one first; answers, behind "= "; words that a right answer has, behind "! "."""
    found = []
    for block in blocks(lines):
        questions = [line for line in block if line[:2] not in ("= ", "! ")]
        found.append((questions, *([line[2:] for line in block if line[:2] == mark] for mark in ("= ", "! "))))
    return found
