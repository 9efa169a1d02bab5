"""A hook of MkDocs: files outside `docs/` that a page links to become pages of the site, below `checkout/`.

So a link stands in a page as a code host wants it, relative to the page's file, and leads somewhere in the site, too.
A link to a file that is not there is left as it is, and fails the strict build.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<=\]\()([^)\s:#]+)")
"""The file that a link or a picture names, without an anchor; not one of another site."""
IMAGES = {".png", ".svg"}
LANGUAGES = {".cfg": "ini", ".in": "text", ".txt": "text", ".yml": "yaml"}
"""How a file is coloured, where it is not by its ending."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link to, what those pages link to, and so on."""
    pages = [DOCS / file.src_uri for file in files.documentation_pages()]
    added: set[Path] = set()
    while pages:
        page = pages.pop()
        for target in _outside(page):
            if target not in added:
                added.add(target)
                files.append(_file(target, config))
                pages += [target] if target.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the links of a page to where the files are in the site."""
    del config, files
    uri = page.file.src_uri
    origin = ROOT / uri.removeprefix("checkout/") if uri.startswith("checkout/") else DOCS / uri

    def led(found: re.Match[str]) -> str:
        target = (origin.parent / found[0]).resolve()
        return relpath(_uri(target), dirname(uri) or ".") if target.is_file() else found[0]

    parts = FENCED.split(markdown)
    return "".join(part if FENCED.match(part) else LINK.sub(led, part) for part in parts)


def _outside(page: Path) -> Iterator[Path]:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        target = (page.parent / link).resolve()
        if target.is_file() and not target.is_relative_to(DOCS):
            yield target


def _uri(target: Path) -> str:
    """Return where a file of the checkout is in the site's sources."""
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    uri = f"checkout/{target.relative_to(ROOT).as_posix()}"
    return uri if target.suffix in {".md", *IMAGES} else f"{uri}.md"


def _file(target: Path, config: MkDocsConfig) -> File:
    if target.suffix in {".md", *IMAGES}:
        return File.generated(config, _uri(target), abs_src_path=str(target))
    language = LANGUAGES.get(target.suffix, target.suffix.removeprefix("."))
    name = target.relative_to(ROOT).as_posix()
    shown = f"# {name}\n\n````{language}\n{target.read_text(encoding='utf-8')}\n````\n"
    return File.generated(config, _uri(target), content=shown)
