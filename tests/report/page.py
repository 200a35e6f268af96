"""Reads pages: their elements in order, and the text that is shown."""

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "input", "hr", "img"}
EVIL = "<script>alert('x')</script><img src=x onerror=alert(1)>\" onmouseover=\"alert(2)"


class Page(HTMLParser):
    """The elements and the text of a page; fails when elements are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def shows(self, words: str) -> bool:
        return words in re.sub(r"\s+", " ", "".join(self.text))

    def broken_links(self) -> list[str]:
        """Return the links inside the page that lead nowhere."""
        ids = {attributes.get("id") for _, attributes in self.elements}
        return [link["href"] for link in self.all("a") if link["href"].lstrip("#") not in ids]
