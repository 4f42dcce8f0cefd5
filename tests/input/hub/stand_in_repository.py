"""In-memory repositories of the fake Hub: branches, commits and large-file storage (LFS)."""

import dataclasses
import hashlib

LARGE = (".parquet", ".safetensors", ".bin")


@dataclasses.dataclass(frozen=True)
class File:
    content: bytes
    large: bool

    @property
    def sha256(self):
        return hashlib.sha256(self.content).hexdigest()

    @property
    def git_sha1(self):
        content = self.pointer if self.large else self.content
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    @property
    def pointer(self):
        return (f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\n"
                f"size {len(self.content)}\n").encode()

    @property
    def etag(self):
        return self.sha256 if self.large else self.git_sha1

    def entry(self, path):
        entry = {"type": "file", "path": path, "oid": self.git_sha1, "size": len(self.content)}
        if self.large:
            entry["lfs"] = {"oid": self.sha256, "size": len(self.content), "pointerSize": len(self.pointer)}
        return entry


def is_large(path):
    return path.endswith(LARGE)


class Repository:
    def __init__(self, private=False, gated=False):
        self.private, self.gated = private, gated
        self.commits = {}   # sha → {path: File}
        self.branches = {}  # name → sha
        self.log = []       # (branch, sha), oldest first
        self.commit("main", {})

    def commit(self, branch, files):
        """Commits exactly these files to the branch."""
        parent = self.branches.get(branch, "")
        listing = "".join(f"{path} {file.etag}\n" for path, file in sorted(files.items()))
        sha = hashlib.sha1(f"{parent}\n{branch}\n{listing}".encode()).hexdigest()
        self.commits[sha] = dict(files)
        self.branches[branch] = sha
        self.log.append((branch, sha))
        return sha

    def put(self, files, branch="main"):
        """Adds or replaces files, given as path → bytes."""
        there = dict(self.commits[self.branches.get(branch, self.branches["main"])])
        there.update({path: File(content, is_large(path)) for path, content in files.items()})
        return self.commit(branch, there)

    def resolve(self, revision):
        """Resolves a branch, commit or commit prefix to a commit."""
        if revision in self.branches:
            return self.branches[revision]
        matches = [sha for sha in self.commits if len(revision) >= 7 and sha.startswith(revision)]
        return matches[0] if len(matches) == 1 else None

    def files(self, revision="main"):
        return {path: file.content for path, file in self.commits[self.resolve(revision)].items()}
