"""Reads this project's Markdown: its lines outside code blocks, its links, and the anchors that
GitHub and GitLab give its headings. tests/docs and tools/site use it."""

import functools
import re
import unicodedata

FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ ]*([^`]*)$")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")


def lines_with_fences(path):
    """Yields (number, line, place). `place` is None outside code blocks. It is "begin", "inside" or
    "end" in them."""
    fence = None
    with open(path) as page:
        for number, line in enumerate(page, 1):
            line = line.rstrip("\n")
            matched = FENCE.match(line)
            if fence is None and matched:
                fence = matched.group(1)
                yield number, line, "begin"
            elif fence and matched and matched.group(1).startswith(fence) and not matched.group(2):
                fence = None
                yield number, line, "end"
            else:
                yield number, line, "inside" if fence else None


def plain_lines(path):
    """Yields (number, line) of a page's lines outside code blocks."""
    for number, line, place in lines_with_fences(path):
        if place is None:
            yield number, line


def links_of(path):
    """Yields (number, link) of a page's links to files and anchors of this repository."""
    for number, line in plain_lines(path):
        for link in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if not re.match(r"[a-z]+:", link):
                yield number, link


@functools.lru_cache(maxsize=None)
def headings(path):
    """Returns {line number: anchor} of a page's headings. Anchors are those of GitHub and GitLab."""
    found = {}
    for number, line in plain_lines(path):
        matched = HEADING.match(line)
        if not matched:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", matched.group(2)).replace("`", "").lower()
        kept = "".join(c for c in text if c in " -_" or unicodedata.category(c)[0] in "LN")
        anchor, again = kept.replace(" ", "-"), 0
        while anchor + ("-%d" % again if again else "") in found.values():
            again += 1
        found[number] = anchor + ("-%d" % again if again else "")
    return found


@functools.lru_cache(maxsize=None)
def anchors_of(path):
    """Returns the anchors of a page: those of its headings, and those that its text declares."""
    declared = {anchor for _, line in plain_lines(path)
                for anchor in re.findall(r'<a (?:id|name)="([^"]+)"', line)}
    return declared | set(headings(path).values())
