"""Pages as a headless Chromium shows them."""

import shutil
import subprocess
from html.parser import HTMLParser

INSTALL = "apt-get update && apt-get install -y chromium"
#: Elements without an end tag.
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Node:
    """An element: tag, attributes, children (elements and text)."""

    def __init__(self, tag, attributes):
        self.tag, self.attributes, self.children = tag, dict(attributes), []

    def text(self):
        """All text below, as one line."""
        parts = (child if isinstance(child, str) else child.text() for child in self.children)
        return " ".join(" ".join(parts).split())

    def all(self, tag=None, **attributes):
        """Elements below with this tag and these attributes, in order (`class_` for `class`)."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        found = []
        for child in self.children:
            if isinstance(child, Node):
                fits = tag in (None, child.tag) and wanted.items() <= child.attributes.items()
                found += [child] * fits + child.all(tag, **attributes)
        return found


class Builder(HTMLParser):
    """Makes nodes of a serialised DOM, where every element is closed."""

    def __init__(self):
        super().__init__()
        self.open = [Node("", [])]

    def handle_starttag(self, tag, attrs):
        node = Node(tag, attrs)
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop().tag == tag

    def handle_data(self, data):
        self.open[-1].children.append(data)


def shown(page, folder):
    """The document that Chromium makes of the text of a page."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert browser, f"no Chromium on this machine; install it with:\n    {INSTALL}"
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/browser"]
    command = [browser, *options, "--dump-dom", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    builder = Builder()
    builder.feed(done.stdout)
    return builder.open[0]
