"""check_links.py FOLDER: checks every link, image, script and style sheet of the HTML files in a folder.

A local target must be a file of the folder, and its #fragment an id there. A page may link to other sites, but it must not load
anything from them.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Targets of links, addresses of loaded files, and ids of one HTML file."""

    def __init__(self, text):
        super().__init__()
        # Doxygen 1.9 links to the section #nested-classes even where all nested classes are private and it has none.
        self.links, self.loads, self.ids = [], [], {"", "nested-classes"}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids |= {value for name in ("id", "name") if (value := values.get(name))}
        if tag in ("a", "area") and values.get("href"):
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(values.get("href", ""))
        elif values.get("src"):
            self.loads.append(values["src"])


def main():
    root = Path(sys.argv[1]).resolve()
    pages = {file: Page(file.read_text(errors="replace")) for file in sorted(root.rglob("*.html"))}
    errors = []
    checked = 0
    for file, page in pages.items():
        if file.name == "404.html":
            continue  # its links begin at the root of a server
        for address in page.links + page.loads:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.loads and parts.scheme not in ("data", "javascript"):
                    errors.append(f"{file.relative_to(root)}: loads {address}")
                continue
            checked += 1
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or not target.is_relative_to(root):
                errors.append(f"{file.relative_to(root)}: {address} is not a file of the site")
            elif target in pages and unquote(parts.fragment) not in pages[target].ids:
                errors.append(f"{file.relative_to(root)}: {address} is not an id of that page")
    for file in root.rglob("*.css"):
        errors += [f"{file.relative_to(root)}: loads {address}"
                   for address in re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)", file.read_text())]
    print(f"{len(pages)} pages, {checked} links within the site, {len(errors)} errors")
    sys.exit("\n".join(errors) if errors else 0)


if __name__ == "__main__":
    main()
