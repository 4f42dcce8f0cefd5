"""HTTP servers of the fake Hub: record and route requests, and inject faults."""

import dataclasses
import http.server
import json
import re
import socket
import sys
import time
import urllib.parse


@dataclasses.dataclass
class Status:
    """Fault: responds with an error status."""
    code: int
    headers: dict = dataclasses.field(default_factory=dict)
    body: bytes = b"{}"


@dataclasses.dataclass
class Body:
    """Fault: damages the body of a response by truncating it, flipping a byte, pausing after every piece, or
    stalling."""
    cut: int = None
    flip: bool = False
    piece: int = None
    pause: float = 0.0
    stall: float = 0.0
    quietly: bool = False      # truncates without a Content-Length
    no_ranges: bool = False    # ignores Range headers


class Drop:
    """Fault: closes the connection without a response."""


class After:
    """Fault: executes the request, then closes the connection without a response."""


@dataclasses.dataclass
class Fault:
    match: str
    action: object
    times: int
    method: str = None


@dataclasses.dataclass
class Request:
    server: str   # "hub" or "storage"
    method: str
    path: str
    headers: dict
    body: bytes


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # a client that went away is no mistake of ours
            super().handle_error(request, client_address)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    @property
    def hub(self):
        return self.server.hub

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.requests.append(Request(self.server.name, self.command, self.path,
                                         {k.lower(): v for k, v in self.headers.items()}, body))
        self.action = self.hub.take_fault(self.command, self.path)
        if isinstance(self.action, Drop):
            return self.hang_up()
        if isinstance(self.action, Status):
            return self.answer(self.action.code, self.action.body, self.action.headers)
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        for method, pattern, function in self.ROUTES:
            found = re.fullmatch(pattern, url.path)
            if found and self.command in method.split():
                arguments = [urllib.parse.unquote(group or "") for group in found.groups()]
                return function(self, *arguments, query=query, body=body)
        return self.answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})

    do_POST = do_PUT = do_HEAD = do_GET

    def hang_up(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def answer(self, code, body=b"", headers=None):
        if isinstance(self.action, After):
            return self.hang_up()
        fault = self.action if isinstance(self.action, Body) else self.hub.throttle
        if fault.flip and body:
            body = bytes([body[0] ^ 1]) + body[1:]
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if fault.quietly:
            self.send_header("Connection", "close")
        elif code != 204 and "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.send(body, fault)

    def send(self, body, fault):
        whole = len(body)
        if fault.cut is not None:
            body = body[:fault.cut]
        size = fault.piece or len(body) or 1
        try:
            for begin in range(0, len(body), size):
                self.wfile.write(body[begin:begin + size])
                time.sleep(fault.pause)
            time.sleep(fault.stall)
        except OSError:
            self.close_connection = True
        if len(body) < whole:
            self.hang_up()

    def json(self, value, code=200, headers=None):
        self.answer(code, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def ranged(self, content, headers=None):
        """Returns the content, or the part requested by a Range header."""
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        headers = {"Accept-Ranges": "bytes", **(headers or {})}
        if not wanted or getattr(self.action, "no_ranges", False):
            return self.answer(200, content, headers)
        begin, end = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
        if begin >= len(content):
            return self.answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
        headers["Content-Range"] = f"bytes {begin}-{end}/{len(content)}"
        return self.answer(206, content[begin:end + 1], headers)
