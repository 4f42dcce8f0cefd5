"""Installs the build, builds examples/cpp against it as an external project, runs them, and moves the installation.

    installed_test.py BUILD_FOLDER SOURCE_FOLDER
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

build, source = map(pathlib.Path, sys.argv[1:])
demo = source / "share/demo/checkpoints/LC2-1200"


environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}  # float32 on the CPU, equal on all machines


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    assert done.stderr == "" or "cmake" in str(command[0]), done.stderr
    return done.stdout


def check(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    prefix = folder / "installed"
    run("cmake", "--install", build, "--prefix", prefix)
    for name in ("man/man1/qkscope.1", "man/man1/sniff-qk.1", "bash-completion/completions/qkscope",
                 "zsh/site-functions/_qkscope", "fish/vendor_completions.d/qkscope.fish"):
        check((prefix / "share" / name).stat().st_size > 0, f"{name} is installed")
    run("cmake", "-S", source / "examples/cpp", "-B", folder / "examples", f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
    run("cmake", "--build", folder / "examples", "-j", "2")
    programs = folder / "examples"

    looks = run(programs / "last_token", demo, "Entry 1, day 4.")
    check(len(looks.splitlines()) == 1 + 8, looks)  # the model has eight layers
    shares = [float(line.split()[-1]) for line in looks.splitlines()[1:]]
    check(all(0 < share <= 1 for share in shares), looks)

    whole, ablated = run(programs / "ablate_head", demo, 2, 1, "Entry 1, day 4.").splitlines()
    check(re.search(r"logit [-\d.]+$", whole) and whole.split()[-1] != ablated.split()[-1], (whole, ablated))
    check(run(programs / "ablate_head", demo, 2, 1, "Entry 1, day 4.").splitlines() == [whole, ablated], "same twice")

    capture = folder / "capture"
    run(prefix / "bin/qkscope", "synth", capture, "--layers", 2, "--head-counts", "4,2", "--quiet")
    table = run(programs / "taxonomy", capture)
    check(re.search(r"^ *\d+ [a-z_ -]+$", table, re.MULTILINE), table)

    bad = subprocess.run([programs / "last_token", folder / "absent", "text"], capture_output=True, text=True)
    check(bad.returncode == 2 and bad.stderr.startswith("error: "), bad)

    # A moved installation works, and prefers its own gnuplot to that of the system.
    moved = prefix.rename(folder / "moved")
    for file in [moved / "bin/qkscope", moved / "bin/sniff-qk", next(moved.rglob("libqkscope.so.*"))]:
        places = re.search(r"RUNPATH.*\[(.*)\]", run("readelf", "-d", file)).group(1).split(":")
        check(not [place for place in places if place.startswith(str(build))], f"{file.name} looks in {places}")
    helper = moved / "libexec/qkscope/gnuplot"
    helper.parent.mkdir(parents=True)
    helper.write_text(f'#!/bin/sh\necho drawn >>{folder}/drawn\nexec gnuplot "$@"\n')
    helper.chmod(0o755)
    run(moved / "bin/qkscope", "analyze", capture, "--only", "pca", "--out", folder / "results", "--quiet")
    run(moved / "bin/qkscope", "figures", folder / "results", "--out", folder / "figures", "--only",
        "position_signal", "--quiet")
    check((folder / "drawn").exists(), "the gnuplot of the installation was not asked")

    library = next(moved.rglob("libqkscope.so"))
    shown = [line.split(maxsplit=2)[2] for line in run("nm", "-D", "-C", "--defined-only", library).splitlines()]
    foreign = [name for name in shown if "qkscope::" not in name]
    check(not foreign, f"symbols that are not ours: {foreign[:5]}")
    needed = run("nm", "-D", "-u", library)
    check("mallopt" not in needed, "the library changes how its host allocates memory")
    check(not re.search("libcu(da|blas|dnn)|libnvrtc", run("readelf", "-d", library)), "the library needs CUDA")
    for module in moved.rglob("libqkscope_cuda.so"):  # if nvcc is installed
        shown = sorted(line.split()[2] for line in run("nm", "-D", "--defined-only", module).splitlines())
        check(shown == ["qkscope_cuda_module", "qkscope_cuda_stamp"], shown)
    version = re.search(r"project\(qkscope VERSION (\d+\.\d+)", (source / "CMakeLists.txt").read_text())[1]
    check(f"libqkscope.so.{version}]" in run("readelf", "-d", library), "the SONAME does not hold major.minor")
    for header in (moved / "include/qkscope").rglob("*.h"):
        outside = re.findall(r"#include [<\"](fmt|nlohmann|arrow|yaml|cuda|CLI)", header.read_text())
        check(not outside, f"{header.name} includes {outside}")
print("1 passed, 0 failed")
