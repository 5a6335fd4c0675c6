"""Preprocessor of the documentation's site (see book.toml): what a page links to and the site
does not have (code, scripts, pages above this folder) is in the repository."""

import json
import posixpath
import re
import sys

REPOSITORY = "https://github.com/landfall-rs/landfall/blob/main/"
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")


def pages_of(items):
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter:
            yield chapter
            yield from pages_of(chapter["sub_items"])


def rewrite(chapter, known):
    here = posixpath.dirname(chapter["source_path"] or chapter["path"])

    def place(match):
        before, target, anchor, after = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match.group()
        # The pages are in `docs`.
        path = posixpath.normpath(posixpath.join("docs", here, target))
        if path.startswith("docs/") and path[len("docs/") :] in known:
            return match.group()
        return f"{before}{REPOSITORY}{path}{anchor or ''}{after}"

    chapter["content"] = LINK.sub(place, chapter["content"])


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    chapters = list(pages_of(book.get("items") or book["sections"]))
    known = {chapter["path"] for chapter in chapters} | {
        chapter["source_path"] for chapter in chapters
    }
    for chapter in chapters:
        rewrite(chapter, known)
    json.dump(book, sys.stdout)


main()
