"""Servers of the simulation: a Hub and an S3 store that answer some requests with faults drawn from a seed."""

import collections
import hashlib
import http.server
import random
import re
import threading
import urllib.parse
import xml.sax.saxutils

from stand_in_hub import StandInHub
from stand_in_server import After, Body, Drop, Status

RANDOM_PARTS = re.compile(r"[0-9a-f]{16,}|\d{8}T\d{6}")


class Faults:
    """Draws the fault of a request from the seed, the request and how often the request came."""

    def __init__(self):
        self.lock = threading.Lock()
        self.begin(0, 0.0)

    def begin(self, seed, rate):
        self.seed, self.rate = seed, rate
        self.seen, self.injected = collections.Counter(), []

    def draw(self, kinds, method, path):
        """Returns the name of a fault and a random generator for its details, or None."""
        with self.lock:
            name = f"{method} {RANDOM_PARTS.sub('#', path)}"
            self.seen[name] += 1
            chance = random.Random(f"{self.seed} {name} {self.seen[name]}")
            if chance.random() >= self.rate:
                return None
            kind = chance.choice(kinds)
            self.injected.append(f"{kind}: {name} {self.seen[name]}")
            return kind, chance


class SimulatedHub(StandInHub):
    KINDS = ("lost request", "lost reply", "busy", "failure", "cut off", "damaged", "slow")

    def __init__(self):
        self.drawn = Faults()
        super().__init__()

    @property
    def injected(self):
        return self.drawn.injected

    def begin(self, seed, rate):
        self.drawn.begin(seed, rate)

    def clear(self):
        for part in (self.repositories, self.objects, self.parts, self.requests):
            part.clear()

    def take_fault(self, method, path):
        drawn = self.drawn.draw(self.KINDS, method, path)
        if drawn is None:
            return None
        kind, chance = drawn
        return {"lost request": Drop(), "lost reply": After(), "busy": Status(503, {"Retry-After": str(chance.randrange(20))}),
                "failure": Status(500), "cut off": Body(cut=chance.randrange(40)), "damaged": Body(flip=True),
                "slow": Body(piece=200, pause=0.001)}[kind]


class StoreHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:  # the client went away
            pass

    def read_body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():  # trailers
            pass
        return body

    def do_GET(self):
        body = self.read_body()
        store = self.server.store
        drawn = store.drawn.draw(store.KINDS, self.command, self.path)
        kind = drawn[0] if drawn else ""
        if kind == "lost request":
            self.close_connection = True
            return
        if kind in ("busy", "failure"):
            code, name = (503, "SlowDown") if kind == "busy" else (500, "InternalError")
            return self.answer(code, f"<Error><Code>{name}</Code><Message>later</Message></Error>".encode())
        code, content, headers = store.handle(self.command, self.path, self.headers, body)
        if kind == "lost reply":
            self.close_connection = True
            return
        self.answer(code, content, headers, cut=kind == "cut off")

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

    def answer(self, code, content=b"", headers=None, cut=False):
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str((headers or {}).get("Length", len(content))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:len(content) // 2] if cut else content)
        if cut:
            self.close_connection = True


class SimulatedStore:
    """The part of S3 that qkscope uses: objects, listings, conditional puts and multipart uploads in one bucket."""
    KINDS = ("lost request", "lost reply", "busy", "failure", "cut off")

    def __init__(self):
        self.drawn = Faults()
        self.objects, self.uploads = {}, {}
        self.lock = threading.Lock()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), StoreHandler)
        self.server.daemon_threads = True
        self.server.store = self
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def environment(self):
        return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server.server_port}", "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}

    @property
    def injected(self):
        return self.drawn.injected

    def begin(self, seed, rate):
        self.drawn.begin(seed, rate)

    def clear(self):
        self.objects, self.uploads = {}, {}

    def handle(self, method, path, headers, body):
        """Returns status, content and headers."""
        url = urllib.parse.urlsplit(path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        bucket, _, key = urllib.parse.unquote(url.path).lstrip("/").partition("/")
        if bucket != "bucket":
            return 404, b"<Error><Code>NoSuchBucket</Code></Error>", {}
        with self.lock:
            if not key:
                return self.list(query) if method == "GET" else (200, b"", {"x-amz-bucket-region": "us-east-1"})
            return getattr(self, method.lower())(key, query, headers, body)

    def list(self, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        contents, folders = [], set()
        for key, content in sorted(self.objects.items()):
            rest = key[len(prefix):]
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
            else:
                contents.append(f"<Contents><Key>{xml.sax.saxutils.escape(key)}</Key><Size>{len(content)}</Size>"
                                f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>{self.etag(content)}</ETag></Contents>")
        common = "".join(f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in sorted(folders))
        return 200, (f"<ListBucketResult><Name>bucket</Name><Prefix>{prefix}</Prefix><IsTruncated>false</IsTruncated>"
                     f"<KeyCount>{len(contents) + len(folders)}</KeyCount>{''.join(contents)}{common}</ListBucketResult>").encode(), {}

    @staticmethod
    def etag(content):
        return f'"{hashlib.md5(content).hexdigest()}"'

    def head(self, key, query, headers, body):
        code, content, more = self.get(key, query, headers, body)
        return code, b"", {**more, "Length": len(content)} if code < 300 else {}

    def get(self, key, query, headers, body):
        if key not in self.objects:
            return 404, b"<Error><Code>NoSuchKey</Code><Message>not there</Message></Error>", {}
        content = self.objects[key]
        more = {"ETag": self.etag(content), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("Range") or "")
        if not wanted:
            return 200, content, more
        begin, end = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
        if begin >= len(content):
            return 416, b"<Error><Code>InvalidRange</Code></Error>", {}
        return 206, content[begin:end + 1], {**more, "Content-Range": f"bytes {begin}-{end}/{len(content)}"}

    def put(self, key, query, headers, body):
        if "aws-chunked" in (headers.get("Content-Encoding") or "") or headers.get("x-amz-decoded-content-length"):
            body = decode_chunks(body)
        if "uploadId" in query:
            if query["uploadId"] not in self.uploads:
                return 404, b"<Error><Code>NoSuchUpload</Code></Error>", {}
            self.uploads[query["uploadId"]][int(query["partNumber"])] = body
        elif headers.get("If-None-Match") == "*" and key in self.objects:
            return 412, b"<Error><Code>PreconditionFailed</Code><Message>it exists</Message></Error>", {}
        else:
            self.objects[key] = body
        return 200, b"", {"ETag": self.etag(body)}

    def post(self, key, query, headers, body):
        if "uploads" in query:
            name = str(len(self.uploads) + 1)
            self.uploads[name] = {}
            return 200, (f"<InitiateMultipartUploadResult><Bucket>bucket</Bucket><Key>{key}</Key><UploadId>{name}</UploadId>"
                         "</InitiateMultipartUploadResult>").encode(), {}
        if "delete" in query:
            for name in re.findall(rb"<Key>(.*?)</Key>", body):
                self.objects.pop(xml.sax.saxutils.unescape(name.decode()), None)
            return 200, b"<DeleteResult></DeleteResult>", {}
        parts = self.uploads.pop(query.get("uploadId"), None)
        if parts is None:
            return 404, b"<Error><Code>NoSuchUpload</Code></Error>", {}
        self.objects[key] = b"".join(parts[number] for number in sorted(parts))
        return 200, (f"<CompleteMultipartUploadResult><Key>{key}</Key><ETag>{self.etag(self.objects[key])}</ETag>"
                     "</CompleteMultipartUploadResult>").encode(), {}

    def delete(self, key, query, headers, body):
        if "uploadId" in query:
            self.uploads.pop(query["uploadId"], None)
        else:
            self.objects.pop(key, None)
        return 204, b"", {}


def decode_chunks(body):
    """Removes the framing of aws-chunked uploads: SIZE[;signature] CRLF data CRLF ... 0 CRLF trailers."""
    content = b""
    while True:
        line, _, rest = body.partition(b"\r\n")
        size = int(line.split(b";")[0], 16)
        if size == 0:
            return content
        content += rest[:size]
        body = rest[size + 2:]
