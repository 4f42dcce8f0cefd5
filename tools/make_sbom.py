#!/usr/bin/env python3
"""Writes the software bill of materials of a release (CycloneDX 1.6, JSON) from the packages themselves.

    tools/make_sbom.py DIST BUILD [--modules FOLDER...] --out FILE

DIST holds the packages of one release: wheels, an sdist, a .tar.gz and a .deb. Of each, the SBOM lists its SHA-256, the libraries
that its programs are linked to (bundled ones with the Debian package and version that they came from, others with who provides
them) and what it asks pip or apt for. Libraries that are compiled in come from the headers that ninja recorded in the build
folders: BUILD for the library and the programs, --modules for the Python module.
"""
import argparse
import email
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import zipfile

# Bundled libraries of pyarrow, by their SONAME. They come from no Debian package.
ARROW = re.compile(r"^lib(arrow|parquet)")
# Part of every Linux with glibc, or of NVIDIA's driver and toolkit: never bundled.
SYSTEM = re.compile(r"^(ld-linux.*|lib(c|m|dl|pthread|rt|resolv|util|anl|mvec))\.so")
NVIDIA = re.compile(r"^lib(cuda|cublas|cudnn|nv)")
# auditwheel adds the hash of a library to its name: libfmt-1a2b3c4d.so.9.1.0.
HASH = re.compile(r"-[0-9a-f]{8}(?=\.)")


class Mistake(Exception):
    pass


def output(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise Mistake(f"{' '.join(command[:4])}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def sha256(file: pathlib.Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


class Bill:
    """Components by their reference, and which component depends on which."""

    def __init__(self) -> None:
        self.components: dict[str, dict] = {}
        self.depends: dict[str, set[str]] = {}

    def add(self, user: str, component: dict) -> str:
        reference = component["bom-ref"]
        known = self.components.setdefault(reference, component)
        for item in component.get("properties", []):
            if item not in known["properties"]:
                known["properties"].append(item)
        self.depends.setdefault(user, set()).add(reference)
        return reference

    def add_debian(self, user: str, package: str, version: str = "", how: str = "") -> None:
        """A Debian package; without a version the installed one."""
        fields = "${Version}\t${Architecture}\t${source:Package}\t${source:Version}"
        installed = output("dpkg-query", "-W", "-f", fields, package, check=False).split("\t")
        purl = f"pkg:deb/debian/{package}"
        component = {"type": "library", "name": package}
        if len(installed) == 4:
            component["version"] = version or installed[0]
            purl += f"@{urllib.parse.quote(component['version'], safe='')}?arch={installed[1]}"
            component["properties"] = [{"name": "debian:source", "value": f"{installed[2]} {installed[3]}"}]
            licences = debian_licences(package)
            if licences:
                component["licenses"] = [{"license": {"name": name}} for name in licences]
        if how:
            component.setdefault("properties", []).append({"name": "qkscope:requirement", "value": how})
        self.add(user, component | {"bom-ref": purl, "purl": purl})

    def add_python(self, user: str, name: str, version: str = "", how: str = "") -> None:
        purl = f"pkg:pypi/{name}" + (f"@{version}" if version else "")
        component = {"type": "library", "name": name, "bom-ref": purl, "purl": purl}
        if version:
            component["version"] = version
        if how:
            component["properties"] = [{"name": "qkscope:requirement", "value": how}]
        self.add(user, component)


def debian_licences(package: str) -> list[str]:
    """Short licence names of a machine-readable debian/copyright, in the order of the file."""
    file = pathlib.Path("/usr/share/doc") / package / "copyright"
    text = file.read_text(errors="replace") if file.exists() else ""
    if not text.startswith("Format:"):
        return []
    return list(dict.fromkeys(name.strip() for name in re.findall(r"^License:[ \t]*(\S.*)$", text, re.MULTILINE)))


def debian_owners(files: list[str]) -> dict[str, str]:
    """Returns the Debian package of each file that belongs to one. Debian 12 knows some files of /usr by their name in /."""
    names = {name: file for file in files for name in (file, re.sub("^/usr(?=/lib)", "", file))}
    owners = {}
    listed = sorted(names)
    for begin in range(0, len(listed), 500):
        for line in output("dpkg-query", "-S", *listed[begin : begin + 500], check=False).splitlines():
            packages, _, path = line.rpartition(": ")
            if path in names:
                owners[names[path]] = packages.split(",")[0].split(":")[0]
    return owners


def unpack(package: pathlib.Path, folder: pathlib.Path) -> None:
    if package.suffix == ".whl":
        zipfile.ZipFile(package).extractall(folder)
    elif package.suffix == ".deb":
        output("dpkg-deb", "-x", str(package), str(folder))
    else:
        with tarfile.open(package) as archive:
            archive.extractall(folder, filter="data")


def linked_libraries(folder: pathlib.Path) -> tuple[set[str], set[str]]:
    """Returns the SONAMEs of the ELF files in a folder, and the names of the libraries that they need."""
    own, needed = set(), set()
    for file in folder.rglob("*"):
        if file.is_symlink() or not file.is_file() or file.open("rb").read(4) != b"\x7fELF":
            continue
        own.add(file.name)
        for kind, name in re.findall(r"\((NEEDED|SONAME)\).*\[(.+)\]", output("readelf", "-d", str(file))):
            (needed if kind == "NEEDED" else own).add(name)
    return own, needed


def library_packages(names: set[str]) -> dict[str, str]:
    """Returns the Debian package that provides each library on this machine, by the name of the library."""
    paths = dict(re.findall(r"^\s+(\S+) \(.*=> (\S+)$", output("/sbin/ldconfig", "-p"), re.MULTILINE))
    files = {name: os.path.realpath(paths[name]) for name in names if name in paths}
    owners = debian_owners(list(files.values()))
    return {name: owners[file] for name, file in files.items() if file in owners}


def bundled_packages(folder: pathlib.Path) -> dict[str, str]:
    """Returns name and version of the Debian packages whose files a package bundles, from the list beside their licences."""
    lists = list(folder.rglob("licences/PACKAGES"))
    lines = lists[0].read_text().splitlines()[1:] if lists else []
    return dict(line.split(",")[0].split(" ") for line in lines)


def add_libraries(bill: Bill, package: str, folder: pathlib.Path, arrow: str) -> None:
    """What the programs of an unpacked package are linked to, and what else it bundles."""
    own, needed = linked_libraries(folder)
    bundled = bundled_packages(folder)
    for name, version in bundled.items():
        bill.add_debian(package, name, version, "bundled")
    names = {HASH.sub("", name): name for name in needed if not re.match(r"libqkscope|_engine", name)}
    # auditwheel keeps the full version in the names of bundled libraries (libx.so.1.2.3): the SONAME is one of their beginnings.
    beginnings = {name: [name[:end.end()] for end in re.finditer(r"\.so|(?<=\d)(?=\.\d)|$", name)] for name in names}
    providers = library_packages({part for parts in beginnings.values() for part in parts})
    for name, real in sorted(names.items()):
        inside = real in own
        provider = next((providers[part] for part in reversed(beginnings[name]) if part in providers), None)
        if ARROW.match(name):
            if inside:
                bill.add_python(package, "pyarrow", arrow, "bundled: Apache Arrow and Parquet")
        elif inside and provider not in bundled:
            raise Mistake(f"{package} bundles {real}, but its licences/PACKAGES does not name {provider or 'a Debian package'}")
        elif not inside and provider and not NVIDIA.match(name):
            bill.add_debian(package, provider, "", "of the system" if SYSTEM.match(name) else "")
        elif not inside and not NVIDIA.match(name):
            raise Mistake(f"{package} needs {real}, which it does not bundle and no package of this machine provides")


def add_requirements(bill: Bill, package: pathlib.Path, folder: pathlib.Path) -> None:
    """What pip or apt install beside a package."""
    if package.suffix == ".deb":
        for field in output("dpkg-deb", "-f", str(package), "Depends").strip().split(", "):
            bill.add_debian(package.name, re.match(r"[^ :]+", field)[0], "", f"apt: {field}")
    for metadata in folder.glob("*.dist-info/METADATA"):
        for requirement in email.message_from_string(metadata.read_text()).get_all("Requires-Dist", []):
            bill.add_python(package.name, re.match(r"[\w.-]+", requirement)[0], "", f"pip: {requirement}")


def headers(build: pathlib.Path) -> set[str]:
    """Returns the header files outside this repository that a build read, from ninja's record."""
    ninja = output("ninja", "-C", str(build), "-t", "deps")
    return {os.path.realpath(line.strip()) for line in ninja.splitlines() if line.startswith("    /")}


def add_compiled_in(bill: Bill, user: str, files: set[str]) -> None:
    """The packages that the headers of a build belong to."""
    for file in files:
        wheel = re.match(r"(.*/site-packages)/([^/]+)/", file)
        if wheel:
            information = list(pathlib.Path(wheel[1]).glob(f"{wheel[2]}-*.dist-info"))
            if information:
                bill.add_python(user, wheel[2], information[0].name.removesuffix(".dist-info").split("-")[1], "headers that the build read")
    for name in sorted(set(debian_owners([file for file in files if file.startswith("/usr/")]).values())):
        bill.add_debian(user, name, "", "headers that the build read")


def make_bill(options: argparse.Namespace, version: str) -> dict:
    bill = Bill()
    qkscope = f"pkg:generic/qkscope@{version}"
    packages = sorted(file for file in options.dist.iterdir() if re.match(rf"qkscope[-_]{re.escape(version)}", file.name) and
                      re.search(r"\.(whl|deb|tar\.gz)$", file.name))
    if not packages:
        raise Mistake(f"{options.dist}: no package of qkscope {version}; expected wheels, a .tar.gz or a .deb")
    arrow = output(options.python, "-c", "import pyarrow; print(pyarrow.__version__)").strip()
    files = headers(options.build).union(*(headers(module) for module in options.modules))
    add_compiled_in(bill, qkscope, files)
    for package in packages:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            unpack(package, folder)
            bill.add(qkscope, {"type": "file", "name": package.name, "bom-ref": package.name,
                               "hashes": [{"alg": "SHA-256", "content": sha256(package)}]})
            add_libraries(bill, package.name, folder, arrow)
            add_requirements(bill, package, folder)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct"))
    time = output("date", "-u", "-d", f"@{epoch}", "+%Y-%m-%dT%H:%M:%SZ").strip()
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"timestamp": time, "component": {
            "type": "application", "name": "qkscope", "version": version, "bom-ref": qkscope, "purl": qkscope,
            "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": [bill.components[key] for key in sorted(bill.components)],
        "dependencies": [{"ref": key, "dependsOn": sorted(bill.depends[key])} for key in sorted(bill.depends)],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", type=pathlib.Path, help="the folder of the packages")
    parser.add_argument("build", type=pathlib.Path, help="the build folder of the library")
    parser.add_argument("--modules", type=pathlib.Path, nargs="*", default=[], help="build folders of the Python module")
    parser.add_argument("--python", default=".venv/bin/python", help="the Python whose pyarrow is bundled (.venv/bin/python)")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    version = output(sys.executable, str(pathlib.Path(__file__).parent / "release_info.py"), "version").strip()
    try:
        bill = make_bill(options, version)
    except Mistake as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        return 1
    options.out.write_text(json.dumps(bill, indent=1) + "\n")
    kinds = [component["type"] for component in bill["components"]]
    print(f"{options.out}: {kinds.count('file')} packages, {kinds.count('library')} libraries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
