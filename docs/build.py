"""Builds the documentation: refreshes the generated table, checks every link, writes HTML pages to `site/`.

Usage: python docs/build.py [--check]  (with --check nothing is written; out-of-date or broken parts are an error)
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import entitlements
from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")])


def broken_links() -> list[str]:
    """Relative links that lead nowhere; a link to a test may name one (`test_x.py::test_y`)."""
    found = []
    for page in pages():
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", target) or target.startswith("#"):
                continue
            place, _, test = target.split("#")[0].partition("::")
            file = (page.parent / place).resolve()
            if not file.exists() or (test and f"def {test}(" not in file.read_text(encoding="utf-8")):
                found.append(f"{page.relative_to(ROOT)}: {target}")
    return found


def write_site() -> int:
    """One HTML page for each Markdown file, with links between them."""
    css = (ROOT / "src/momentree/report/page.css").read_text(encoding="utf-8")
    markdown = MarkdownIt("commonmark").enable("table")
    for page in pages():
        out = ROOT / "site" / page.relative_to(ROOT).with_suffix(".html")
        out.parent.mkdir(parents=True, exist_ok=True)
        body = re.sub(r'href="([^":]+)\.md(#[^"]*)?"', r'href="\1.html\2"', markdown.render(page.read_text("utf-8")))
        out.write_text(
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{page.stem}</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{css}</style></head>'
            f"<body><main>{body}</main></body></html>\n",
            encoding="utf-8",
        )
    return len(pages())


def main() -> None:
    entitlements.main()
    broken = broken_links()
    if broken:
        raise SystemExit("broken links:\n  " + "\n  ".join(broken))
    if "--check" not in sys.argv:
        print(f"site: {write_site()} pages")


if __name__ == "__main__":
    main()
