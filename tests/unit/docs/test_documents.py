"""What the documents say can be followed: links lead somewhere, commands and settings exist.

Links to other sites are not asked for: a test talks to nobody but this machine.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from prefix_router.cli import COMMANDS, build_parser
from tests.support.tools import ROOT

DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "conformance" / "README.md"])
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(text: str) -> str:
    """The text without blocks and spans of code, whose brackets are no links."""
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))


def anchors(path: Path) -> set[str]:
    """The names that headings have in a rendered document."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", path.read_text(encoding="utf-8"))):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


def dead_links(path: Path) -> Iterator[str]:
    for link in _LINK.findall(prose(path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            yield link


def commands(path: Path) -> Iterator[str]:
    """The lines of code blocks that a person is to type, joined where they go on."""
    for language, block in _FENCE.findall(path.read_text(encoding="utf-8")):
        if language not in ("", "sh", "shell", "bash", "console"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            yield line.strip().removeprefix("$ ")


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_every_link_leads_somewhere(path: Path) -> None:
    assert list(dead_links(path)) == []


def test_a_dead_link_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A b\n[ok](page.md#a-b) [no](gone.md) [nor](#c) `[code](x.md)` [far](https://x.y/z)")
    assert list(dead_links(page)) == ["gone.md", "#c"]


_PROGRAM = re.compile(r"^(?:\S*/)?prefix-router\s+(?=[a-z])|^python3? -m prefix_router\s+(?=[a-z])")


def lines_of_the_program() -> list[tuple[str, str]]:
    return [
        (name(path), part.strip())
        for path in DOCUMENTS
        for line in commands(path)
        for part in re.split(r" && | \| |; ", line)
        if _PROGRAM.match(part.strip())
    ]


@pytest.mark.parametrize(("document", "line"), lines_of_the_program())
def test_every_command_line_is_one_that_the_program_takes(
    document: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(_PROGRAM.sub("", re.sub(r"\[[^\]]*\]", "", line)), comments=True)
    words = words[: next((at for at, word in enumerate(words) if word in (">", "<", "&")), None)]
    command = words[0]
    assert command in {known.name for known in COMMANDS}, document
    try:
        build_parser(command).parse_args(words)
    except SystemExit as end:
        said = capsys.readouterr().err
        if end.code != 0 and "No such file" not in said:  # the files of an example are not here
            pytest.fail(f"{document}: {line}\n{said}")


def test_some_command_lines_are_found() -> None:
    assert len(lines_of_the_program()) > 20


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    named = {
        (name(path), target)
        for path in DOCUMENTS
        for target in re.findall(r"`(?:[A-Z_]+=\S+ )?make ([a-z-]+)", path.read_text(encoding="utf-8"))
    }
    assert named
    assert {(document, target) for document, target in named if target not in targets} == set()
