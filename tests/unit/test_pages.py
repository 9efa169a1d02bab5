"""The pages: each is in its index, and each link between them leads somewhere."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")],
    key=str,
)
INDEXES = [ROOT / "docs" / "README.md", ROOT / "docs" / "decisions" / "README.md"]


def _links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", text)


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them: lower case, without punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("index", INDEXES, ids=lambda page: str(page.relative_to(ROOT)))
def test_index_lists_every_page_beside_it(index: Path) -> None:
    listed = {link.partition("#")[0] for link in _links(index)}
    assert {page.name for page in index.parent.glob("*.md")} - {index.name} <= listed


def test_decisions_are_headed_by_number_and_title_and_listed_so_in_order() -> None:
    index = INDEXES[1]
    for section in index.read_text(encoding="utf-8").split("\n## ")[1:]:
        listed = re.findall(r"^- \[(\d{4})\]\((\S+)\): (.+)$", section, re.MULTILINE)
        assert listed == sorted(listed)
        for number, page, title in listed:
            heading, _, _ = (index.parent / page).read_text(encoding="utf-8").partition("\n")
            assert heading == f"# {int(number)}. {title}"
            assert page.startswith(number)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_has_no_broken_link(page: Path) -> None:
    for link in _links(page):
        if ":" in link:
            continue  # another site
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in _anchors(target), link


def test_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 110, "what a stranger reads before deciding; the rest has pages of its own"


LITERARY = re.compile(
    r"\b(nobody|somebody|anybody|whoever|whom|anew|lest|upon|for\s+ever|cannot\s+be\s+had|rubbish|offence|told"
    r"|all\s+the\s+same|words?\s+of)\b|'s\s+word\b",
    re.IGNORECASE,
)
FOLDERS = {
    "py js css html yml yaml json java xml": (
        *("include", "dags", "plugins", "sparkjobs", "config", "devstack", "benchmarks", "docs"),
        *("clusters.d", "containers", ".github"),
    ),
    "java yml": ("tests",),
}
CODE = sorted(
    [
        path
        for endings, folders in FOLDERS.items()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix.removeprefix(".") in endings.split() and "target" not in path.parts
    ]
    + [
        ROOT / name
        for name in ("Makefile", "airflow.cfg", "mkdocs.yml", "pyproject.toml", ".pre-commit-config.yaml")
    ]
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_uses_plain_words(page: Path) -> None:
    text = re.sub(
        r"`[^`\n]*`|\([^)\s]*\)", "", page.read_text(encoding="utf-8")
    )  # names, and targets of links
    assert not [match[0] for match in LITERARY.finditer(text)]


def _words_of(code: Path) -> str:
    """What people read of a file: docstrings, comments and messages; of what is no Python, everything."""
    text = code.read_text(encoding="utf-8")
    if code.suffix != ".py":
        return text
    shown = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", None))
    words = [t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type in shown]
    return "\n".join(re.sub(r"\{[^{}]*\}", "", each) for each in words)


@pytest.mark.parametrize(
    "package", sorted({code.parent for code in CODE}), ids=lambda p: str(p.relative_to(ROOT))
)
def test_code_uses_plain_words(package: Path) -> None:
    for code in CODE:
        if code.parent == package:
            assert not [match[0] for match in LITERARY.finditer(_words_of(code))], code


def test_docstrings_of_tests_use_plain_words() -> None:
    """Of all but the model of faults, whose text is still to be mended."""
    for file in (ROOT / "tests").rglob("*.py"):
        if (ROOT / "tests" / "faults" / "model") in file.parents:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                assert not [match[0] for match in LITERARY.finditer(str(node.value.value))], file


def test_every_page_is_in_the_menu_of_the_site() -> None:
    _, _, menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")
    missing = {page.name for page in (ROOT / "docs").glob("*.md")} - set(re.findall(r"[\w.-]+\.md", menu))
    assert not missing, "'make docs' fails without them"
