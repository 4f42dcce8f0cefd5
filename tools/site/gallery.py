"""gallery.py OUT: draws every figure of qkscope from the demo's model, and writes OUT/index.md with the figures and the commands.

Runs in build/gallery, where the results of an earlier demo are used again. The programs `qkscope` and `python`, with the package
qkscope, must be on the PATH.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).parent / "gallery"
LARGEST_SVG_BYTES = 250_000  # larger figures are shown as PNG

INTRODUCTION = """---
hide: [navigation]
---

# Gallery

Which figures does qkscope draw, and with which command? All of them are below, drawn from the demo's model by the commands shown;
[figures.md](../reference/figures.md) lists their data. The [report of the demo](report.html) shows the same heads interactively, and
[the viewer](viewer.html) the attention of four of them over a text of the demo.

"""


@dataclass
class Section:
    title: str
    introduction: str
    results: str  # folder that `qkscope figures` reads
    commands: list[str]  # write the results
    options: str = ""  # of `qkscope figures`
    files: list[str] = field(default_factory=list)  # of tools/site/gallery, which the commands read
    only: list[str] = field(default_factory=list)  # figures to draw; empty: all that no earlier section has

    @property
    def figures(self):
        return Path("figures") / Path(self.results).name

    @property
    def draw(self):
        return f"qkscope figures {self.results} --out figures{self.options}"


SECTIONS = [
    Section("Runs of a sweep", "The ten checkpoints of [the demo](../start/demo.md).", "results/demo",
            ["qkscope demo --out results"]),
    Section("Heads of one run", "The last checkpoint of the demo.", "results/run",
            ["qkscope analyze results/demo/captures/LC2-1200 --out results/run --planes-of 3.5 --weights share/demo/checkpoints/LC2-1200"]),
    Section("Attention over every token", "[Statistics](../reference/statistics.md) of the same checkpoint.", "results/attention",
            ["qkscope stats --config statistics.yaml", "qkscope analyze results/statistics --out results/attention"],
            files=["statistics.yaml"]),
    Section("Your own attention pattern", "The score of every head for [a pattern of your own](../how-to/heads.md).",
            "results/pattern",
            ["python pattern.py",
             "qkscope heads --model share/demo/checkpoints/LC2-1200 --pattern pattern.txt --out results/pattern --no-figures \\\n"
             '  --text "Entry 1, day 5. A letter came for Orn: the road by the river is closed."'],
            files=["pattern.py"], only=["head_map_pattern"]),
    Section("Where a score comes from", "[Contributions](../how-to/attribution.md) of earlier heads and MLPs to attention scores.",
            "results/attribution",
            ["qkscope attribute --model share/demo/checkpoints/LC2-1200 --head 6.2 --keys top:3 --top all --out results/attribution --no-figures \\\n"
             '  --text "Entry 1, day 5. A letter came for Orn. Entry 2, day 6. A letter came for"'],
            only=["attribution_matrix", "attribution_bars", "score_by_frequency", "score_by_distance"]),
    Section("Composition during training", "What feeds the keys of an induction head, at three checkpoints of the demo.",
            "results/composition",
            ["qkscope attribute --model share/demo/checkpoints/S1-40 --also share/demo/checkpoints/S1-1200 \\\n"
             "  --also share/demo/checkpoints/LC2-1200 --dataset share/demo/corpus.jsonl --limit 12 --max-tokens 256 \\\n"
             "  --head 7.1 --sample 2400 --out results/composition --no-figures"],
            only=["composition_graph", "composition_over_runs"]),
    Section("Families of models", "Models of several families; here checkpoints before and after context extension.",
            "results/families", ["qkscope sweep families.yaml --out results --no-figures"], files=["families.yaml"],
            only=["bias_histogram", "family_scatter"]),
    Section("Benchmark scores", "Any score of each model; here the loss of the demo's checkpoints on held-out texts.",
            "results/demo", ["python scores.py"], options=" --scores scores.csv", files=["scores.py"], only=["ap_drop_vs_score"]),
]


def run(command):
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}\n{done.stderr}")


def all_figures():
    """Returns the names of all figures, which the program lists when a name is wrong."""
    wrong = ["qkscope", "figures", "results/demo", "--out", "figures/none", "--only", "none"]
    return subprocess.run(wrong, capture_output=True, text=True).stderr.strip().partition("there are ")[2].split(", ")


def draw(section):
    """Computes the results of a section and draws its figures into figures/NAME."""
    for name in section.files:
        shutil.copy(SOURCES / name, name)
    for command in section.commands:
        run(command)
    for chosen in [f" --only {name}" for name in section.only] or [""]:
        command = section.draw.replace("--out figures", f"--out {section.figures}")
        run(f"{command} --format svg,png --no-report{chosen}")


def markdown_of(section, names, out):
    """Returns the text of a section, and copies its pictures to the folder `out`."""
    parts = [f"## {section.title}\n\n{section.introduction}\n\n```sh\n" + "\n".join([*section.commands, section.draw]) + "\n```\n"]
    for name in section.files:
        language = {".py": "python", ".yaml": "yaml"}[Path(name).suffix]
        lines = [f"```{language}", *(SOURCES / name).read_text().splitlines(), "```"]
        parts.append("\n    ".join([f'??? note "{name}"\n', *lines]) + "\n")
    parts.append('<div class="gallery" markdown>\n')
    for name in names:
        picture = section.figures / f"{name}.svg"
        if picture.stat().st_size > LARGEST_SVG_BYTES:
            picture = picture.with_suffix(".png")
        shutil.copy(picture, out)
        title, caption, _ = (section.figures / f"{name}.txt").read_text().split("\n\n")
        parts.append(f"<div markdown>\n### {name}\n\n[![{title}]({picture.name}){{ loading=lazy }}]({picture.name})\n\n"
                     f"**{title}.** {caption}\n\n```sh\n{section.draw} --only {name}\n```\n</div>\n")
    return "\n".join([*parts, "</div>\n"])


def main():
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    work = ROOT / "build/gallery"
    work.mkdir(parents=True, exist_ok=True)
    os.chdir(work)
    for folder in [Path("figures"), *(folder for folder in Path("results").glob("*") if folder.name != "demo")]:
        shutil.rmtree(folder, ignore_errors=True)
    if not Path("share").exists():
        Path("share").symlink_to(ROOT / "share")
    text = INTRODUCTION
    missing = None
    for section in SECTIONS:
        draw(section)
        missing = all_figures() if missing is None else missing
        names = [name for name in missing if (section.figures / f"{name}.svg").exists()]
        missing = [name for name in missing if name not in names]
        text += markdown_of(section, names, out) + "\n"
    if missing:
        raise SystemExit(f"no section of the gallery draws {', '.join(missing)}")
    shutil.copy("results/demo/figures/report.html", out)
    run("qkscope view --model share/demo/checkpoints/LC2-1200 --dataset share/demo/corpus.jsonl --row 0"
        f" --heads 2.0,2.1,6.2,7.0 --export {out}/viewer.html")
    (out / "index.md").write_text(text)


if __name__ == "__main__":
    main()
