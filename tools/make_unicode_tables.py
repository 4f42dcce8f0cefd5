#!/usr/bin/env python3
"""Writes src/input/tokenizer/unicode/*.inc: the Unicode properties of the tokenizers.

Each part of the Hugging Face library uses its own Unicode version (the regular expressions, the normalizers, Rust's
character methods). The ids must agree with that library, so each property is queried from the part that uses it, for every
code point, instead of taken from one version of the standard. Usage: tools/make_unicode_tables.py (needs the Python
package tokenizers).
"""

import pathlib

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parent.parent / "src" / "tokenizer" / "unicode"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)
WIDTH = 180  # columns of a table line
HIGHEST_MARK = "\u0345"  # combining class 240, the highest


def characters_of(pre_tokenizer, alone):
    """Returns the code points that the pre-tokenizer splits off. `alone`: each is tested between two letters."""
    found = set()
    for start in range(0, len(CODE_POINTS), 4096):
        block = CODE_POINTS[start : start + 4096]
        if not alone:
            for piece, _ in pre_tokenizer.pre_tokenize_str("".join(map(chr, block))):
                found.update(map(ord, piece))
            continue
        text = "".join("a" + chr(c) for c in block) + "a"
        whole = {begin for _, (begin, _) in pre_tokenizer.pre_tokenize_str(text)}
        found.update(c for i, c in enumerate(block) if 2 * i + 2 in whole)
    return found


def matching(pattern):
    return characters_of(pre_tokenizers.Split(Regex(pattern), "removed", invert=True), alone=False)


def properties():
    """Returns flag name -> code points, in the order of the bits in unicode.h."""
    letters = matching(r"\p{L}")
    any_case = matching(r"\p{Lm}") | matching(r"\p{Lo}") | matching(r"\p{M}")
    spaces = matching(r"\s")
    rust_spaces = set(CODE_POINTS) - characters_of(pre_tokenizers.WhitespaceSplit(), alone=False)
    assert rust_spaces == spaces, "the two kinds of white space differ: give them a flag each"
    words = characters_of(pre_tokenizers.Whitespace(), alone=False)  # matches \w, or neither \w nor space
    not_words = characters_of(pre_tokenizers.Whitespace(), alone=True)
    return {
        "letter": letters,
        "number": matching(r"\p{N}"),
        "space": spaces,
        "newline": {0x0A, 0x0D},
        "upper": matching(r"\p{Lu}") | matching(r"\p{Lt}") | any_case,
        "lower": matching(r"\p{Ll}") | any_case,
        "digit": characters_of(pre_tokenizers.Digits(individual_digits=True), alone=True),
        "punctuation": characters_of(pre_tokenizers.Punctuation("isolated"), alone=True),
        "word": words - not_words,
        "regex_word": matching(r"\w"),
    }


def runs(value_of):
    """Returns (first code point, value) wherever the value changes."""
    out, last = [], None
    for c in range(0x110000):
        value = value_of(c)
        if value != last:
            out.append((c, value))
            last = value
    return out


def combining_classes():
    """Returns code point -> rank of its combining class, inferred from the order that the normalizer gives marks."""
    order = normalizers.NFD().normalize_str
    marks = [c for c in CODE_POINTS if order(HIGHEST_MARK + chr(c)) != HIGHEST_MARK + order(chr(c))]
    marks = [c for c in marks if len(order(chr(c))) == 1]
    classes = []  # one list of marks per class, in ascending order
    for c in marks:
        for group in classes:
            other = chr(group[0])
            if order(other + chr(c)) == other + chr(c) and order(chr(c) + other) == chr(c) + other:
                group.append(c)
                break
        else:
            classes.append([c])
    # Ordering needs only the rank of a group: the number of groups before it.
    def before(a, b):
        return order(chr(b[0]) + chr(a[0])) == chr(a[0]) + chr(b[0]) and a is not b
    rank = {c: 1 + sum(before(other, group) for other in classes) for group in classes for c in group}
    rank[ord(HIGHEST_MARK)] = 1 + len(classes)
    return rank


def decompositions(form):
    apply = form.normalize_str
    return {c: apply(chr(c)) for c in CODE_POINTS
            if c not in HANGUL_SYLLABLES and apply(chr(c)) != chr(c)}


def compositions(canonical):
    """Returns (first, second, composed) for every pair that NFC composes."""
    compose = normalizers.NFC().normalize_str
    out = []
    for c, parts in canonical.items():
        if len(parts) > 1 and compose(chr(c)) == chr(c):
            head = compose(parts[:-1])
            assert len(head) == 1, hex(c)
            out.append((ord(head), ord(parts[-1]), c))
    return out


def write(name, what, rows):
    header = (f"// {what}. Made by tools/make_unicode_tables.py from the Python package "
              f"tokenizers {tokenizers.__version__}; do not edit.\n")
    lines, line = [], ""
    for row in rows:
        if len(line) + len(row) > WIDTH:
            lines.append(line)
            line = ""
        line += row
    (OUT / name).write_text(header + "\n".join(lines + [line]) + "\n")


def mapping_rows(mapping):
    return [f"{{0x{c:X},{{{','.join(f'0x{ord(x):X}' for x in text)}}}}}," for c, text in mapping.items()]


def main():
    flags = [frozenset(points) for points in properties().values()]
    value = lambda c: sum(1 << bit for bit, points in enumerate(flags) if c in points)
    write("properties.inc", "{first code point, flags} of each run",
          [f"{{0x{c:X},{v}}}," for c, v in runs(value)])
    classes = combining_classes()
    write("combining.inc", "{first code point, rank of the combining class} of each run",
          [f"{{0x{c:X},{v}}}," for c, v in runs(lambda c: classes.get(c, 0))])
    canonical = decompositions(normalizers.NFD())
    compatible = decompositions(normalizers.NFKD())
    write("canonical.inc", "Full canonical decompositions", mapping_rows(canonical))
    write("compatible.inc", "Full compatibility decompositions that are not canonical",
          mapping_rows({c: t for c, t in compatible.items() if canonical.get(c) != t}))
    write("compositions.inc", "{first, second, composed}",
          [f"{{0x{a:X},0x{b:X},0x{c:X}}}," for a, b, c in compositions(canonical)])
    lower = normalizers.Lowercase().normalize_str
    write("lowercase.inc", "Lower case of each character that has one",
          mapping_rows({c: lower(chr(c)) for c in CODE_POINTS if lower(chr(c)) != chr(c)}))


if __name__ == "__main__":
    main()
