"""Random texts with edge cases for tokenizers: all scripts, combining marks, emoji, long runs, special tokens."""

import random

SCRIPTS = [
    (0x20, 0x7E, 30), (0xA0, 0x24F, 6), (0x250, 0x36F, 3), (0x370, 0x52F, 6), (0x531, 0x6FF, 5),
    (0x700, 0xDFF, 4), (0xE00, 0x10FF, 4), (0x1100, 0x11FF, 2), (0x1200, 0x1DFF, 2),
    (0x1E00, 0x1FFF, 2), (0x2000, 0x2BFF, 5), (0x2C00, 0x2FFF, 1), (0x3000, 0x30FF, 4),
    (0x3100, 0x33FF, 1), (0x4E00, 0x9FFF, 6), (0xA000, 0xABFF, 1), (0xAC00, 0xD7A3, 3),
    (0xF900, 0xFFEF, 2), (0x10000, 0x10FFF, 1), (0x11000, 0x1BFFF, 1), (0x1D000, 0x1DFFF, 1),
    (0x1E000, 0x1F2FF, 1), (0x1F300, 0x1FAFF, 4), (0x20000, 0x2A6DF, 1), (0xE0000, 0xE01EF, 1),
    (0x00, 0x1F, 1), (0x7F, 0x9F, 1), (0xE000, 0xF8FF, 1), (0x10FFF0, 0x10FFFF, 1),
]
WORDS = (
    "the of and to in is that it was for on are as with his they at be this from I have or by one had "
    "not but what all were when we there can an your which their said if do will each about how up out "
    "them then she many some so these would other into has more her two like him see time could no make "
    "than first been its who now people my made over did down only way find use may water long little "
    "very after words called just where most know Hello World HTTPServer camelCase snake_case McDonald "
    "naïve café über straße ŒUVRE İstanbul ΑΒΓΣ σς ПриВет мир שלום عالم नमस्ते 你好 世界 こんにちは 안녕 ไทย "
    "ĳ ﬁne ﬃ Å Å ǆ ǅ ½ ² ٣ ４５ Ⅷ ㈱ ㎏ ﷺ ſ K"
).split()
GLUE = [" ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "", "", "\u00a0", "\u3000",
        "\u200b", "\u2028", "▁", ".", ",", "。", "，", "!", "?!", "...", "--", "/", "//", "_", "'", "’"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'M", "'LL", "'lL",
                "'D", "'ſ", "'x", "'", "''s", "’s"]
MARKS = ["\u0301", "\u0300", "\u0308", "\u0327", "\u0323", "\u0307", "\u0345", "\u05b0", "\u0651",
         "\u093c", "\u3099", "\u1161", "\u11a8", "\u20d0", "\ufe0f", "\u200d"]
EMOJI = ["👨\u200d👩\u200d👧", "🏳️\u200d🌈", "👍🏽", "🇩🇪", "❤️", "1️⃣", "😀", "🧑🏻\u200d🚀"]
RUNS = "aA1 .\n\t-=_#*é中👍\u0301'/ 0▁"


class RandomTexts:
    """Seeded, so that failures are reproducible. `special` are strings inserted into the texts."""

    def __init__(self, seed, special=()):
        self.random = random.Random(seed)
        self.special = list(special)
        self.weights = [w for _, _, w in SCRIPTS]
        self.pieces = [(self.words, 6), (self.script, 5), (self.any_script, 2), (self.number, 2),
                       (self.run, 1), (self.mark, 2), (self.code, 1)]
        if self.special:
            self.pieces.append((self.token, 2))

    def character(self, script=None):
        low, high, _ = script or self.random.choices(SCRIPTS, self.weights)[0]
        code = self.random.randint(low, high)
        return chr(code) if not 0xD800 <= code < 0xE000 else "?"

    def words(self):
        out = []
        for _ in range(self.random.randint(1, 8)):
            word = self.random.choice(WORDS)
            case = self.random.random()
            out.append(word.upper() if case < 0.08 else word.capitalize() if case < 0.2 else word)
            if self.random.random() < 0.12:
                out.append(self.random.choice(CONTRACTIONS))
            out.append(self.random.choice(GLUE))
        return "".join(out)

    def script(self):
        script = self.random.choices(SCRIPTS, self.weights)[0]
        return "".join(self.character(script) for _ in range(self.random.randint(1, 12)))

    def any_script(self):
        return "".join(self.character() for _ in range(self.random.randint(1, 8)))

    def number(self):
        return str(self.random.randint(0, 10 ** self.random.randint(1, 14)))

    def run(self):
        return self.random.choice(RUNS) * self.random.choice([2, 3, 5, 17, 60, 200])

    def mark(self):
        base = self.random.choice("aeouAEOnNcsqא कか각가") if self.random.random() < 0.7 else self.character()
        return base + "".join(self.random.choices(MARKS, k=self.random.randint(1, 4)))

    def code(self):
        return self.random.choice(["for (int i = 0; i < n; ++i) {\n\treturn x[i];\n}\n", "def f(a, b=1):\n    pass\n",
                                   "<div class=\"a\">é</div>", "https://a.b/c?d=e&f=%20", "x += y**2 # ok\r\n",
                                   self.random.choice(EMOJI)])

    def token(self):
        token = self.random.choice(self.special)
        change = self.random.random()
        if change < 0.1:
            token = token[:-1]
        elif change < 0.2:
            token = token.upper()
        return self.random.choice(["", "", " ", "  ", "\n", "a"]) + token + self.random.choice(["", "", " ", "  ", "b"])

    def text(self):
        if self.random.random() < 0.01:
            return self.random.choice(["", " ", "\n", "  \n ", "a", "\u0301", "\U0010ffff"])
        makers = [maker for maker, _ in self.pieces]
        weights = [weight for _, weight in self.pieces]
        count = self.random.choice([1, 1, 2, 3, 4, 6])
        return "".join(maker() for maker in self.random.choices(makers, weights, k=count))
