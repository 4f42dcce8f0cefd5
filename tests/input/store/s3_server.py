"""S3 server for tests (moto in server mode), and a proxy that injects 503 responses and aborted uploads."""

import contextlib
import http.client
import http.server
import os
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import boto3

KEY, SECRET = "a-key-for-tests", "a-secret-that-nobody-may-print"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class S3Server:
    """Runs moto in a separate process. With `authenticated`, requests must be signed by an existing user."""

    def __init__(self, authenticated=False):
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        environment = dict(os.environ)
        environment.pop("INITIAL_NO_AUTH_ACTION_COUNT", None)
        if authenticated:  # what sets it up is not asked for credentials
            environment["INITIAL_NO_AUTH_ACTION_COUNT"] = "4"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)], env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._wait()
        self.key, self.secret = KEY, SECRET
        if authenticated:
            self._make_user()
        self.client("s3").create_bucket(Bucket="bucket")

    def _wait(self):
        for _ in range(300):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(self.endpoint + "/moto-api/", timeout=5).close()
                return
            time.sleep(0.1)
        raise RuntimeError("the S3 server does not start")

    def _make_user(self):
        iam = self.client("iam")
        iam.create_user(UserName="tester")
        policy = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}'
        iam.put_user_policy(UserName="tester", PolicyName="all", PolicyDocument=policy)
        made = iam.create_access_key(UserName="tester")["AccessKey"]
        self.key, self.secret = made["AccessKeyId"], made["SecretAccessKey"]

    def client(self, service="s3"):
        return boto3.client(service, endpoint_url=self.endpoint, aws_access_key_id=self.key,
                            aws_secret_access_key=self.secret, region_name="us-east-1")

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Proxy:
    """Proxy that answers some requests with 503 and aborts some uploads halfway."""

    def __init__(self, server, busy=0.0, cut=0.0, seed=0):
        self.chance = random.Random(seed)
        self.busy, self.cut = busy, cut
        self.refused = self.cuts = self.requests = 0
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def read_body(self, cut):
                """Forwards the body, or half of it; an aborted upload gets no response."""
                if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
                    body = b""
                    while size := int(self.rfile.readline().split(b";")[0], 16):
                        body += self.rfile.read(size // 2 if cut else size)
                        if cut:
                            return None
                        self.rfile.readline()
                    self.rfile.readline()
                    return body
                length = int(self.headers.get("Content-Length", 0))
                cut = cut and length > 0
                body = self.rfile.read(length // 2 if cut else length)
                return None if cut else body

            def handle_one(self):
                proxy.requests += 1
                body = self.read_body(self.command == "PUT" and proxy.chance.random() < proxy.cut)
                if body is None:
                    proxy.cuts += 1
                    self.close_connection = True
                    return
                if proxy.chance.random() < proxy.busy:
                    proxy.refused += 1
                    answer = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
                    self.send_response(503)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(answer)
                    return
                self.forward(body)

            def forward(self, body):
                onward = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
                headers = {name: value for name, value in self.headers.items()
                           if name.lower() not in ("connection", "expect", "transfer-encoding")}
                onward.request(self.command, self.path, body=body, headers=headers)
                response = onward.getresponse()
                content = response.read()
                self.send_response(response.status)
                for name, value in response.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding", "content-length", "server", "date"):
                        self.send_header(name, value)
                length = response.getheader("Content-Length") if self.command == "HEAD" else len(content)
                self.send_header("Content-Length", str(length or 0))
                self.end_headers()
                self.wfile.write(content)
                onward.close()

            def handle(self):
                with contextlib.suppress(OSError):  # the client may go at any time
                    super().handle()

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()
