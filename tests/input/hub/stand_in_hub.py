"""Fake Hugging Face Hub on loopback: the endpoints that clients use, a second server for large files, and fault
injection.

    with StandInHub() as hub:
        hub.model("org/name").put({"config.json": b"{}"})
        hub.fault("/resolve/", Status(503), times=2)
        ... a client with HF_ENDPOINT=hub.endpoint ...
        hub.requests  # all requests, in order
"""

import base64
import hashlib
import json
import threading
import time
import urllib.parse

from stand_in_repository import File, Repository, is_large
from stand_in_server import Body, Fault, Handler, Server

TOKEN = "hf_stand_in_token"


class StandInHub:
    def __init__(self, page_size=1000, multipart_from=None, chunk=1000, token=TOKEN):
        self.repositories, self.objects, self.parts = {}, {}, {}
        self.requests, self.faults = [], []
        self.page_size, self.multipart_from, self.chunk, self.token = page_size, multipart_from, chunk, token
        self.may_write = True
        self.throttle = Body()   # how bodies are sent that no fault spoils
        self.upload_pause = 0.0  # seconds before an upload is stored
        self.lock = threading.RLock()
        self.servers = {name: self.start(name, handler)
                        for name, handler in (("hub", HubHandler), ("storage", StorageHandler))}
        self.endpoint = "http://127.0.0.1:%d" % self.servers["hub"].server_port
        self.storage = "http://127.0.0.1:%d" % self.servers["storage"].server_port

    def start(self, name, handler):
        server = Server(("127.0.0.1", 0), handler)
        server.hub, server.name = self, name
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers.values():
            server.shutdown()
            server.server_close()

    def model(self, repo_id, **options):
        return self.repositories.setdefault(("models", repo_id), Repository(**options))

    def dataset(self, repo_id, **options):
        return self.repositories.setdefault(("datasets", repo_id), Repository(**options))

    def fault(self, match, action, times=1, method=None):
        self.faults.append(Fault(match, action, times, method))

    def take_fault(self, method, path):
        with self.lock:
            for fault in self.faults:
                if fault.times > 0 and fault.match in path and fault.method in (None, method):
                    fault.times -= 1
                    return fault.action
        return None

    def asked(self, match, method=None):
        return [r for r in self.requests if match in r.path and method in (None, r.method)]


def with_repository(function):
    """Returns the repository if the token may read it, else raises the Hub's error response."""
    def route(self, kind, repo_id, *arguments, query, body):
        repository = self.hub.repositories.get((kind or "models", repo_id))
        known = self.headers.get("Authorization") == f"Bearer {self.hub.token}"
        if repository is None or (repository.private and not known):
            return self.json({"error": "Repository not found"}, 404 if known else 401,
                             {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        if repository.gated and not known:
            return self.json({"error": "gated"}, 401 if not self.headers.get("Authorization") else 403,
                             {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to it is restricted."})
        if self.command in ("POST", "PUT") and not repository_is_read(self.path) and not (
                known and self.hub.may_write):
            return self.json({"error": "You don't have the rights"}, 403)
        return function(self, repository, kind or "models", repo_id, *arguments, query=query, body=body)
    return route


def repository_is_read(path):
    return "/paths-info/" in path


def with_commit(function):
    """Resolves a revision to a commit."""
    @with_repository
    def route(self, repository, kind, repo_id, revision, *arguments, query, body):
        sha = repository.resolve(revision)
        if sha is None:
            return self.json({"error": "Invalid rev id"}, 404,
                             {"X-Error-Code": "RevisionNotFound", "X-Error-Message": f"Invalid rev id: {revision}"})
        return function(self, repository, kind, repo_id, sha, *arguments, query=query, body=body)
    return route


class HubHandler(Handler):
    @with_commit
    def info(self, repository, kind, repo_id, sha, query, body):
        files = repository.commits[sha]
        self.json({"id": repo_id, "_id": "0", "sha": sha, "private": repository.private, "tags": [], "gated": False,
                   "disabled": False, "downloads": 0, "likes": 0, "lastModified": "2026-01-01T00:00:00.000Z",
                   "siblings": [{"rfilename": path} for path in sorted(files)]})

    def main_info(self, kind, repo_id, query, body):
        self.info(kind, repo_id, "main", query=query, body=body)

    @with_commit
    def tree(self, repository, kind, repo_id, sha, folder, query, body):
        folder = folder.strip("/")
        prefix = folder + "/" if folder else ""
        entries, folders = [], set()
        for path, file in sorted(repository.commits[sha].items()):
            if not path.startswith(prefix):
                continue
            parts = path[len(prefix):].split("/")
            folders.update(prefix + "/".join(parts[:i]) for i in range(1, len(parts)))
            entries.append(file.entry(path))
        entries += [{"type": "directory", "path": path, "oid": "0" * 40, "size": 0} for path in sorted(folders)]
        if query.get("recursive", "").lower() not in ("true", "1"):
            entries = [e for e in entries if "/" not in e["path"][len(prefix):]]
        if folder and not entries:
            return self.json({"error": "not found"}, 404, {"X-Error-Code": "EntryNotFound"})
        begin = int(query.get("cursor", 0))
        headers = {}
        if begin + self.hub.page_size < len(entries):
            url = urllib.parse.urlsplit(self.path)
            query["cursor"] = begin + self.hub.page_size
            headers["Link"] = f'<{self.hub.endpoint}{url.path}?{urllib.parse.urlencode(query)}>; rel="next"'
        self.json(entries[begin:begin + self.hub.page_size], headers=headers)

    def whole_tree(self, kind, repo_id, revision, query, body):
        self.tree(kind, repo_id, revision, "", query=query, body=body)

    @with_commit
    def paths_info(self, repository, kind, repo_id, sha, query, body):
        if "json" in self.headers.get("Content-Type", ""):
            paths = json.loads(body)["paths"]
        else:
            paths = urllib.parse.parse_qs(body.decode())["paths"]
        files, entries = repository.commits[sha], []
        for path in paths:
            path = path.strip("/")
            if path in files:
                entries.append(files[path].entry(path))
            elif any(name.startswith(path + "/") for name in files):
                entries.append({"type": "directory", "path": path, "oid": "0" * 40, "size": 0})
        self.json(entries)

    @with_repository
    def refs(self, repository, kind, repo_id, query, body):
        branches = [{"name": name, "ref": f"refs/heads/{name}", "targetCommit": sha}
                    for name, sha in repository.branches.items()]
        self.json({"branches": branches, "tags": [], "converts": []})

    @with_commit
    def resolve(self, repository, kind, repo_id, sha, path, query, body):
        file = repository.commits[sha].get(path)
        if file is None:
            return self.json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
        headers = {"ETag": f'"{file.etag}"', "X-Repo-Commit": sha}
        if not file.large:
            if self.command == "HEAD":
                return self.answer(200, b"", {**headers, "Content-Length": str(len(file.content))})
            return self.ranged(file.content, headers)
        self.hub.objects[file.sha256] = file.content
        return self.answer(302, b"", {**headers, "X-Linked-Etag": f'"{file.sha256}"',
                                      "X-Linked-Size": str(len(file.content)),
                                      "Location": f"{self.hub.storage}/objects/{file.sha256}?signature=secret"})

    def create(self, query, body):
        wish = json.loads(body)
        if self.headers.get("Authorization") != f"Bearer {self.hub.token}" or not self.hub.may_write:
            return self.json({"error": "You don't have the rights to create a dataset under this namespace"}, 403)
        key = (wish.get("type", "model") + "s", "/".join(filter(None, (wish.get("organization"), wish["name"]))))
        if key in self.hub.repositories:
            return self.json({"error": "You already created this dataset repo"}, 409)
        private = wish.get("private", False) or wish.get("visibility") == "private"
        self.hub.repositories[key] = Repository(private=private)
        self.hub.repositories[key].put({".gitattributes": b"*.parquet filter=lfs diff=lfs merge=lfs -text\n"})
        return self.json({"url": f"{self.hub.endpoint}/{key[0]}/{key[1]}"})

    def validate_yaml(self, query, body):
        """Validates a dataset card before upload; accepts any card."""
        self.json({"errors": [], "warnings": []})

    @with_repository
    def branch(self, repository, kind, repo_id, name, query, body):
        if name in repository.branches:
            return self.json({"error": "Reference already exists"}, 409)
        start = repository.resolve(json.loads(body or b"{}").get("startingPoint", "main"))
        repository.branches[name] = start
        return self.json({})

    @with_commit
    def preupload(self, repository, kind, repo_id, sha, query, body):
        answers = []
        for wish in json.loads(body)["files"]:
            there = repository.commits[sha].get(wish["path"])
            answers.append({"path": wish["path"], "uploadMode": "lfs" if is_large(wish["path"]) else "regular",
                            "shouldIgnore": False, "oid": there.git_sha1 if there else None})
        self.json({"files": answers})

    @with_repository
    def batch(self, repository, kind, repo_id, query, body):
        self.json({"transfer": "basic",
                   "objects": [self.upload_action(wish["oid"], wish["size"]) for wish in json.loads(body)["objects"]]},
                  headers={"Content-Type": "application/vnd.git-lfs+json"})

    def upload_action(self, oid, size):
        answer = {"oid": oid, "size": size}
        if oid in self.hub.objects:
            return answer
        upload = {"href": f"{self.hub.storage}/objects/{oid}?signature=secret"}
        if self.hub.multipart_from is not None and size >= self.hub.multipart_from:
            count = -(-size // self.hub.chunk)
            header = {"chunk_size": str(self.hub.chunk)}
            header.update({f"{i + 1:05}": f"{self.hub.storage}/parts/{oid}/{i + 1}?signature=secret"
                           for i in range(count)})
            upload = {"href": f"{self.hub.endpoint}/complete/{oid}", "header": header}
        answer["actions"] = {"upload": upload, "verify": {"href": f"{self.hub.endpoint}/verify/{oid}"}}
        return answer

    def complete(self, oid, query, body):
        parts = json.loads(body)["parts"]
        pieces = [self.hub.parts.get((oid, part["partNumber"])) for part in parts]
        if None in pieces or any(part["etag"] != f'"{hashlib.md5(piece).hexdigest()}"'
                                 for part, piece in zip(parts, pieces)):
            return self.json({"error": "a part is missing"}, 400)
        return self.store(oid, b"".join(pieces))

    def store(self, oid, content):
        if hashlib.sha256(content).hexdigest() != oid:
            return self.json({"error": "the content does not have this sum"}, 400)
        self.hub.objects[oid] = content
        return self.json({})

    def verify(self, oid, query, body):
        there = self.hub.objects.get(oid)
        if there is None or len(there) != json.loads(body)["size"]:
            return self.json({"error": "not uploaded"}, 404)
        return self.json({})

    @with_repository
    def commit(self, repository, kind, repo_id, branch, query, body):
        with self.hub.lock:
            head = repository.branches.get(branch)
            if head is None:
                return self.json({"error": "Invalid rev id"}, 404, {"X-Error-Code": "RevisionNotFound"})
            files = dict(repository.commits[head])
            for line in body.splitlines():
                item = json.loads(line)
                value = item["value"]
                if item["key"] == "header" and value.get("parentCommit", head) != head:
                    return self.json({"error": "A commit has happened since."}, 412)
                if item["key"] == "file":
                    files[value["path"]] = File(base64.b64decode(value["content"]), False)
                elif item["key"] == "lfsFile":
                    if value["oid"] not in self.hub.objects:
                        return self.json({"error": "LFS pointer pointed to a file that does not exist"}, 400)
                    files[value["path"]] = File(self.hub.objects[value["oid"]], True)
                elif item["key"] == "deletedFile":
                    if files.pop(value["path"], None) is None:
                        return self.json({"error": "A file with this name doesn't exist"}, 404)
            sha = repository.commit(branch, files)
        return self.json({"commitUrl": f"{self.hub.endpoint}/{kind}/{repo_id}/commit/{sha}", "commitOid": sha,
                          "success": True})

    API = r"/api/(models|datasets)/([^/]+(?:/[^/]+)?)"
    PAGE = r"/(?:(datasets)/)?([^/]+/[^/]+?)"
    ROUTES = [
        ("GET", API + r"/revision/([^/]+)", info),
        ("GET", API + r"/tree/([^/]+)", whole_tree),
        ("GET", API + r"/tree/([^/]+)/(.*)", tree),
        ("POST", API + r"/paths-info/([^/]+)", paths_info),
        ("GET", API + r"/refs", refs),
        ("POST", r"/api/repos/create", create),
        ("POST", r"/api/validate-yaml", validate_yaml),
        ("POST", API + r"/branch/([^/]+)", branch),
        ("POST", API + r"/preupload/([^/]+)", preupload),
        ("POST", API + r"/commit/([^/]+)", commit),
        ("GET", API, main_info),
        ("POST", PAGE + r"\.git/info/lfs/objects/batch", batch),
        ("POST", r"/complete/(\w+)", complete),
        ("POST", r"/verify/(\w+)", verify),
        ("GET HEAD", PAGE + r"/resolve/([^/]+)/(.*)", resolve),
    ]


class StorageHandler(Handler):
    def get_object(self, oid, query, body):
        content = self.hub.objects.get(oid)
        if content is None:
            return self.answer(404)
        if self.command == "HEAD":
            return self.answer(200, b"", {"Content-Length": str(len(content))})
        return self.ranged(content, {"ETag": '"storage"'})

    def put_object(self, oid, query, body):
        if hashlib.sha256(body).hexdigest() != oid:
            return self.answer(400, b"the content does not have this sum")
        time.sleep(self.hub.upload_pause)
        self.hub.objects[oid] = body
        return self.answer(200)

    def put_part(self, oid, number, query, body):
        self.hub.parts[(oid, int(number))] = body
        return self.answer(200, b"", {"ETag": f'"{hashlib.md5(body).hexdigest()}"'})

    ROUTES = [
        ("GET HEAD", r"/objects/(\w+)", get_object),
        ("PUT", r"/objects/(\w+)", put_object),
        ("PUT", r"/parts/(\w+)/(\d+)", put_part),
    ]
