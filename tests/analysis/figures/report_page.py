"""The report in headless Chromium, as a reader uses it."""

import json

from browser import Browser


class ReportPage(Browser):
    def __init__(self, screenshots=None, **size):
        super().__init__(**size)
        self.screenshots = screenshots

    def rows(self):
        """Returns the cells of the visible rows."""
        return self.run("""[...document.querySelectorAll(".head-row")].map(
            (row) => [...row.children].map((cell) => cell.textContent))""")

    def column(self, title):
        titles = self.run("""[...document.querySelectorAll("#head-header button")].map(
            (button) => button.textContent.replace(/ [▲▼]$/, ""))""")
        return titles.index(title)

    def count(self):
        return self.run("document.getElementById('head-count').textContent")

    def ink(self, canvas):
        """Returns the number of different colours on a canvas of the head view."""
        return self.run(f"""(() => {{
          const canvas = document.querySelectorAll("#head-view canvas")[{canvas}];
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          return new Set(new Uint32Array(data.buffer)).size;
        }})()""")

    def shot(self, name):
        if self.screenshots:
            self.screenshots.mkdir(parents=True, exist_ok=True)
            self.screenshot(self.screenshots / f"{name}.png")

    def sort_by(self, title):
        self.click(f"#head-header > div:nth-child({self.column(title) + 1}) button")
        self.settle()

    def choose_text(self, column, title):
        """Filters a text column."""
        field = f".filter[data-column={json.dumps(column)}] select"
        options = self.run(f"[...document.querySelector({json.dumps(field)}).options].map((option) => option.text)")
        self.choose(field, options.index(title) - 1)

    def bound(self, column, low="", high=""):
        """Filters a column of numbers."""
        for place, value in ((1, low), (2, high)):
            self.choose(f".filter[data-column={json.dumps(column)}] input:nth-child({place})", value)

    def clear_filters(self):
        self.click("#clear")
        self.settle()

    def told(self):
        """Returns the text of the tooltip; empty if it is hidden."""
        return self.run("document.querySelector('.hint').hidden ? '' : document.querySelector('.hint').textContent")
