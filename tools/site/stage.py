"""Writes the Markdown pages of the documentation site to build/site-source, for MkDocs (./run.sh docs).

Pages are those of docs/, README.md as the home page, notebooks with their outputs, other files of the repository that pages link
to, and the references of the Python package and of the C++ headers. gallery.py and Doxygen write theirs to the same folder.
"""

import posixpath
import re
from pathlib import Path

from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build/site-source"
PAGES = Path(__file__).parent / "pages"  # copied as they are

# Links of Markdown and images of HTML that are neither addresses nor anchors of the same page.
LINK = re.compile(r'(?:(?<=\]\()|(?<= src="))(?!\w+:|#)[^)#"\s]+(?=[)#"])')
CODE = re.compile(r"^( *)```.*?^\1```|^ {4}[^\n]*$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
LANGUAGES = {".cff": "yaml", ".cpp": "cpp", ".csv": "text", ".py": "python", ".yaml": "yaml"}


def page_of(path):
    """Returns the path in the site of a file of the repository."""
    path = {"README.md": "index.md", "docs/README.md": "documents.md"}.get(path, path).removeprefix("docs/")
    if path.endswith(".ipynb"):
        return path.removesuffix(".ipynb") + ".md"
    return path + ".md" if Path(path).suffix in LANGUAGES else path


def links(path, text):
    """Returns the relative links of a page, without those in code: matches, and their targets as paths of the repository."""
    code = [match.span() for match in CODE.finditer(text)]
    return [
        (match, posixpath.normpath(posixpath.join(posixpath.dirname(path), match[0])))
        for match in LINK.finditer(text) if not any(begin <= match.start() < end for begin, end in code)
    ]


def with_site_links(path, text):
    """Rewrites relative links between files of the repository as links between pages of the site."""
    folder = posixpath.dirname(page_of(path)) or "."
    for match, target in reversed(links(path, text)):
        text = text[: match.start()] + posixpath.relpath(page_of(target), folder) + text[match.end():]
    return text


def markdown_of(path):
    """Returns a file of the repository as Markdown, and the images of a notebook by their names."""
    file = ROOT / path
    if file.suffix == ".ipynb":
        text, resources = MarkdownExporter().from_filename(file)
        images = {f"{file.stem}_{name}": content for name, content in resources["outputs"].items()}
        text = re.sub(r"<style scoped>.*?</style>", "", text, flags=re.DOTALL)
        text = text.replace('<table border="1" class="dataframe">', "<table>")
        return re.sub(r"\]\((output_\w+\.\w+)\)", rf"]({file.stem}_\1)", text), images
    if file.suffix in LANGUAGES:
        return f"---\nsearch: {{exclude: true}}\n---\n\n# {path}\n\n```{LANGUAGES[file.suffix]}\n{file.read_text()}\n```\n", {}
    return file.read_text(), {}


def write(place, content):
    (SITE / place).parent.mkdir(parents=True, exist_ok=True)
    (SITE / place).write_bytes(content.encode() if isinstance(content, str) else content)


def stage(paths):
    """Writes files of the repository, and all that their pages link to. MkDocs reports links to files that do not exist."""
    staged = set()
    while paths:
        path = paths.pop()
        if path in staged or not (ROOT / path).is_file():
            continue
        staged.add(path)
        if Path(path).suffix in (".gif", ".png", ".svg"):
            write(page_of(path), (ROOT / path).read_bytes())
            continue
        text, images = markdown_of(path)
        write(page_of(path), with_site_links(path, text))
        for name, content in images.items():
            write(posixpath.join(posixpath.dirname(path), name), content)
        paths += [target for _, target in links(path, text)]


def cpp_page():
    """Returns a table of the public headers, with their first comments and links to Doxygen's pages."""
    lines = ["# C++ API", "", "What do the headers of the C++ library declare? Each name below opens Doxygen's page of a header.",
             "[library.md](library.md) shows how to link to the library.", ""]
    for title, folder in (("Stable", ""), ("Experimental", "experimental/")):
        lines += [f"## {title} headers", "", "| header | contents |", "| --- | --- |"]
        for header in sorted((ROOT / "include/qkscope" / folder).glob("*.h")):
            comment = re.match(r"((?:// .*\n)+)", header.read_text())[1].replace("// ", "").replace("\n", " ")
            page = header.name.replace("_", "__").replace(".", "_8") + ".html"
            lines.append(f"| [{folder}{header.name}](../cpp/{page}) | {comment.split('. ')[0].rstrip('. ')} |")
        lines.append("")
    return "\n".join(lines)


def check_python_page():
    """The page of the Python API must list exactly the public names of the package."""
    names = re.search(r"^__all__ = \[(.*?)\]", (ROOT / "python/qkscope/__init__.py").read_text(), re.DOTALL | re.MULTILINE)[1]
    public = set(re.findall(r"\w+", names)) - {"__version__"}
    listed = set(re.findall(r"^::: qkscope\.(\w+)", (PAGES / "reference/python-api.md").read_text(), re.MULTILINE))
    if public != listed:
        raise SystemExit(f"tools/site/pages/reference/python-api.md and qkscope.__all__ differ: {sorted(public ^ listed)}")


def main():
    check_python_page()
    pages = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.ipynb"), *ROOT.glob("*.md")]
    stage([str(page.relative_to(ROOT)) for page in pages])
    write("reference/cpp-api.md", cpp_page())
    for file in PAGES.rglob("*.*"):
        write(str(file.relative_to(PAGES)), file.read_bytes())


if __name__ == "__main__":
    main()
