"""Prints a C++ header with its // comments as Doxygen comments (INPUT_FILTER of the Doxyfile), line by line.

A comment on lines of its own describes the declaration below it, a comment behind code the declaration before it. The comment
at the top of a header describes the file. Section titles (// ---- Run ----) stay plain comments.
"""

import re
import sys


def doxygen_text(text):
    text = re.sub(r"^ {3}", " " * 6, text)  # indented code; Doxygen's Markdown needs more than four spaces
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([\\@#])", r"\\\1", part) for part in parts)


def doxygen_lines(lines):
    column = -1  # of the last comment behind code, which comments below it at the same column continue
    in_section = False
    for line in lines:
        before, slashes, text = line.partition("//")
        if text and not re.match(r" (?!NOLINT)", text):
            slashes = ""  # part of an address in a string, or a remark for clang-tidy
        own_line = slashes and not before.strip()
        if not own_line:
            column = len(before) if slashes else -1
        in_section = own_line and (in_section or text.startswith(" ---"))
        if slashes and not in_section:
            line = before + ("///<" if len(before) == column else "///") + doxygen_text(text)
        yield line.replace("#pragma once", "/// @file")


print("\n".join(doxygen_lines(open(sys.argv[1]).read().splitlines())))
