"""Downloads from the fake Hub: selected files and all failure modes."""

import http.server
import json
import pathlib
import shutil
import ssl
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hub_test_case import HubTestCase, main, tiny_checkpoint  # noqa: E402
from stand_in_server import Body, Drop, Status  # noqa: E402
from stand_in_repository import File  # noqa: E402

NEEDED = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


class Files(HubTestCase):
    HUB = {"page_size": 3}

    def test_only_needed_files_are_stored_in_the_standard_layout(self):
        self.hub.model("org/tiny").put({**tiny_checkpoint(), "README.md": b"# Tiny", "pytorch_model.bin": b"pickle",
                                        "onnx/model.onnx": b"other", "consolidated.safetensors": b"twice"})
        out = self.download("org/tiny")
        self.assertIn(str(self.snapshot()), out)
        self.assert_snapshot(NEEDED)
        self.assert_nothing_half_done()
        folder = self.snapshot().parents[1]
        self.assertEqual((folder / "refs" / "main").read_text(), self.snapshot().name)
        self.assertTrue((folder / "trees" / f"{self.snapshot().name}.json").exists())

    def test_cached_files_are_not_requested_again(self):
        self.hub.model("org/tiny").put(tiny_checkpoint())
        self.download("org/tiny")
        self.hub.requests.clear()
        self.run_program("inspect", "org/tiny")
        self.run_program("tokenize", "--tokenizer", "org/tiny", "--text", "hi")
        self.assertEqual(self.hub.requests, [])
        self.download("org/tiny")
        self.assertEqual(self.hub.asked("/resolve/"), [])

    def test_commands_download_only_needed_files(self):
        self.hub.model("org/tiny").put(tiny_checkpoint())
        self.run_program("tokenize", "--tokenizer", "org/tiny", "--text", "hi")
        self.assert_snapshot({"tokenizer.json", "tokenizer_config.json"})
        self.run_program("inspect", "org/tiny")
        self.assert_snapshot(NEEDED - {"model.safetensors"})
        self.run_program("trace", "--model", "org/tiny", "--text", "hi", "--hooks", "logits",
                         "--out", self.folder / "out.safetensors")
        self.assert_snapshot(NEEDED)

    def test_shards_of_the_index_are_downloaded(self):
        index = {"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors",
                                                "b": "model-00002-of-00002.safetensors"}}
        self.hub.model("org/tiny").put({
            "config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode(),
            "model-00001-of-00002.safetensors": b"one", "model-00002-of-00002.safetensors": b"two",
            "model.fp32-00001-of-00001.safetensors": b"another precision"})
        self.download("org/tiny")
        self.assert_snapshot({"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
                              "model-00002-of-00002.safetensors"})

    def test_branches_tags_and_commits_are_resolved(self):
        repository = self.hub.model("org/tiny")
        first = repository.put(tiny_checkpoint())
        repository.branches["stage1-step-40000"] = first
        repository.put({"config.json": tiny_checkpoint()["config.json"] + b"\n"})
        self.download("org/tiny", "--revision", "stage1-step-40000")
        self.assert_snapshot(NEEDED, revision=first)
        self.download("org/tiny", "--revision", first)
        self.download("org/tiny", "--revision", first[:9])
        self.download("org/tiny")
        self.assert_snapshot(NEEDED)
        self.assertEqual(len(self.hub.asked("model.safetensors")), 1, "the same content is fetched once")

    def test_refresh_follows_a_moved_branch(self):
        repository = self.hub.model("org/tiny")
        first = repository.put(tiny_checkpoint())
        self.download("org/tiny")
        repository.put({"config.json": tiny_checkpoint()["config.json"] + b"\n"})
        self.assertIn(first, self.run_program("inspect", "org/tiny"))
        self.assertIn(repository.branches["main"], self.download("org/tiny"))
        self.assertIn(repository.branches["main"], self.run_program("inspect", "org/tiny"))

    def test_dataset_files_are_selected_by_the_card(self):
        card = b"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: test\n    path: long/*.jsonl\n---\n"
        files = {"README.md": card, "long/a.jsonl": b'{"text": "a"}\n', "long/b.jsonl": b'{"text": "b"}\n',
                 "short/c.jsonl": b'{"text": "c"}\n'}
        self.hub.dataset("org/texts").put(files)
        out = self.run_program("dataset", "org/texts", "--split", "test", "--json", "--quiet")
        self.assertEqual(json.loads(out)["rows"], 2)
        self.assert_snapshot({"README.md", "long/a.jsonl", "long/b.jsonl"}, "org/texts", "datasets")
        self.assertIn("its card names: test", self.run_program("dataset", "org/texts", status=2))

    def test_a_split_added_later_is_downloaded(self):
        self.hub.dataset("org/texts").put({"train.jsonl": b'{"text": "a"}\n'})
        self.run_program("dataset", "org/texts")
        self.hub.dataset("org/texts").put({"test.jsonl": b'{"text": "b"}\n'})
        self.run_program("dataset", "org/texts", "--split", "test")
        self.assert_snapshot({"test.jsonl"}, "org/texts", "datasets")

    def test_dataset_files_are_selected_by_name(self):
        self.hub.dataset("org/texts").put({"data/train-0.jsonl": b'{"text": "a"}\n', "data/test-0.jsonl": b"x"})
        self.download("org/texts", "--dataset")
        self.assert_snapshot({"data/train-0.jsonl"}, "org/texts", "datasets")
        self.assertIn("data/test-0.jsonl", self.download("org/texts", "--dataset", "--split", "dev", status=2))

    def test_concurrent_downloads_fetch_each_file_once(self):
        self.hub.model("org/tiny").put(tiny_checkpoint())
        self.hub.throttle = Body(piece=50_000, pause=0.05)
        processes = [self.start("hub", "download", "org/tiny") for _ in range(3)]
        for process in processes:
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, out + err)
        self.assert_snapshot(NEEDED)
        self.assertEqual(len(self.hub.asked("/objects/")), 1)

    def test_the_cache_is_listed_and_cleaned(self):
        repository = self.hub.model("org/tiny")
        first = repository.put(tiny_checkpoint())
        self.download("org/tiny", "--revision", first)
        repository.put({"config.json": tiny_checkpoint()["config.json"] + b"\n"})
        self.download("org/tiny")
        listed = json.loads(self.run_program("hub", "cache", "--json"))["repositories"][0]
        content = {**tiny_checkpoint(), "second": tiny_checkpoint()["config.json"] + b"\n"}
        self.assertEqual(listed["id"], "org/tiny")
        self.assertEqual(listed["bytes"], sum(map(len, content.values())))
        self.assertEqual({r["commit"]: r["refs"] for r in listed["revisions"]},
                         {first: [], repository.branches["main"]: ["main"]})
        self.run_program("hub", "remove", "org/tiny", "--revision", "main")
        self.assert_snapshot(NEEDED, revision=first)
        self.assertFalse(self.snapshot().exists())
        self.run_program("hub", "remove", "org/tiny")
        self.assertFalse((self.cache / "models--org--tiny").exists())
        self.assertIn("no such model in the cache", self.run_program("hub", "remove", "org/tiny", status=2))


    def test_evicted_weights_are_downloaded_again(self):
        repository = self.hub.model("org/tiny")
        first = repository.put(tiny_checkpoint())
        repository.branches["other"] = repository.put({"model.safetensors": b"others", "config.json": b"{}"})
        repository.branches["main"] = first
        self.download("org/tiny")
        self.download("org/tiny", "--revision", "other")
        out = self.run_program("hub", "remove", "org/tiny", "--only", "weights")
        self.assertRegex(out, r"^32\d\.\d KiB freed")
        self.assert_snapshot(NEEDED - {"model.safetensors"})
        self.assert_snapshot(NEEDED, revision="other")
        self.assertIn("0 B freed", self.run_program("hub", "remove", "org/tiny", "--only", "weights"))
        self.hub.requests.clear()
        self.run_program("trace", "--model", "org/tiny", "--text", "hi", "--hooks", "logits", "--out", "out")
        self.assert_snapshot(NEEDED)
        self.assertEqual(len(self.hub.asked("/resolve/")), 1)


class Faults(HubTestCase):
    def setUp(self):
        super().setUp()
        self.hub.model("org/tiny").put(tiny_checkpoint())

    def downloads_in_spite_of(self, match, action, times=1):
        self.hub.fault(match, action, times)
        self.download("org/tiny")
        self.assert_snapshot(NEEDED)
        self.assert_nothing_half_done()

    def ranges(self):
        return [r.headers.get("range") for r in self.hub.asked("/objects/")]

    def test_dropped_connections_are_retried(self):
        for match in ("/revision/", "/tree/", "config.json", "/objects/"):
            self.hub.fault(match, Drop())
        self.downloads_in_spite_of("/objects/", Drop())

    def test_a_truncated_body_is_resumed(self):
        self.downloads_in_spite_of("/objects/", Body(cut=100_000))
        self.assertEqual(self.ranges(), [None, "bytes=100000-"])

    def test_a_body_that_ends_early_is_resumed(self):
        self.downloads_in_spite_of("/objects/", Body(cut=100_000, quietly=True))
        self.assertEqual(self.ranges(), [None, "bytes=100000-"])

    def test_progress_resets_the_retry_count(self):
        self.downloads_in_spite_of("/objects/", Body(cut=40_000), times=7)

    def test_without_range_support_the_download_restarts(self):
        self.hub.fault("/objects/", Body(cut=100_000))
        self.downloads_in_spite_of("/objects/", Body(no_ranges=True))

    def test_a_partial_file_is_resumed(self):
        self.leave(tiny_checkpoint()["model.safetensors"][:1234])
        self.downloads_in_spite_of("nothing", Drop())
        self.assertEqual(self.ranges(), ["bytes=1234-"])

    def test_a_corrupt_partial_file_is_replaced(self):
        self.leave(b"x" * 1234)
        self.downloads_in_spite_of("nothing", Drop())
        self.assertEqual(self.ranges(), ["bytes=1234-", None])

    def test_an_oversized_partial_file_is_replaced(self):
        self.leave(b"x" * 2_000_000)
        self.downloads_in_spite_of("nothing", Drop())

    def test_status_416_restarts_the_download(self):
        self.leave(tiny_checkpoint()["model.safetensors"][:1234])
        self.downloads_in_spite_of("/objects/", Status(416))
        self.assertEqual(self.ranges(), ["bytes=1234-", None])

    def leave(self, content):
        file = File(tiny_checkpoint()["model.safetensors"], True)
        path = self.snapshot().parents[1] / "blobs" / f"{file.sha256}.incomplete"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)

    def test_a_wrong_hash_is_downloaded_again(self):
        self.downloads_in_spite_of("/objects/", Body(flip=True))
        self.downloads_in_spite_of("config.json", Body(flip=True))

    def test_a_persistently_wrong_hash_is_a_failure(self):
        for match, name in (("/objects/", "SHA-256"), ("tokenizer.json", "git SHA-1")):
            self.hub.fault(match, Body(flip=True), times=2)
            self.assertIn(f"does not have the {name}", self.download("org/tiny", status=1))
            self.assertFalse(self.snapshot().exists())
            shutil.rmtree(self.cache)
        self.downloads_in_spite_of("nothing", Drop())

    def test_transient_server_errors_are_retried(self):
        # Files download in parallel with few attempts each, so faults are spread over the files.
        for name, codes in (("/config.json", (408, 429, 500)), ("/tokenizer.json", (502, 503, 504))):
            for code in codes:
                self.hub.fault(name, Status(code, {"Retry-After": "0"}))
        self.downloads_in_spite_of("/revision/", Status(503, {"Retry-After": "0"}), times=2)

    def test_persistent_server_errors_are_reported(self):
        self.hub.fault("/revision/", Status(503, {"Retry-After": "0"}), times=100)
        self.assertIn("the Hub is in trouble (status 503)", self.download("org/tiny", status=1))
        self.assertEqual(len(self.hub.asked("/revision/")), 5)

    def test_retry_after_is_honoured(self):
        begin = time.monotonic()
        self.downloads_in_spite_of("/revision/", Status(429, {"Retry-After": "2"}))
        self.assertGreaterEqual(time.monotonic() - begin, 2.0)

    def test_an_excessive_retry_after_is_not_honoured(self):
        self.hub.fault("/revision/", Status(429, {"Retry-After": "86400"}), times=100)
        self.assertIn("limits our requests", self.download("org/tiny", status=1))
        self.assertEqual(len(self.hub.asked("/revision/")), 1)

    def test_slow_downloads_complete(self):
        self.downloads_in_spite_of("/objects/", Body(piece=20_000, pause=0.05))
        self.assertEqual(self.ranges(), [None])

    def test_a_stalled_connection_is_aborted_and_resumed(self):
        self.hub.fault("/objects/", Body(cut=100_000, stall=20))
        self.download("org/tiny", HF_HUB_DOWNLOAD_TIMEOUT="1")
        self.assert_snapshot(NEEDED)
        self.assertEqual(self.ranges(), [None, "bytes=100000-"])

    def test_a_server_that_sends_a_byte_at_a_time_is_given_up(self):
        self.hub.fault("/objects/", Body(piece=1, pause=0.2), times=100)
        begin = time.monotonic()
        self.assertIn("slower than 4096 bytes per second",
                      self.download("org/tiny", status=1, HF_HUB_DOWNLOAD_TIMEOUT="1"))
        self.assertEqual(len(self.hub.asked("/objects/")), 5)
        self.assertLess(time.monotonic() - begin, 60)

    def test_passwords_in_the_endpoint_are_not_printed(self):
        out = self.download("org/tiny", status=2, HF_ENDPOINT="https://me:s3cret@hub.example")
        self.assertIn("hub.example", out)
        self.assertNotIn("s3cret", out)

    def test_an_unreachable_server_is_reported(self):
        self.assertIn("is the network there?",
                      self.download("org/tiny", status=1, HF_ENDPOINT="http://127.0.0.1:9"))

    def test_a_model_in_the_cache_needs_no_server(self):
        self.download("org/tiny")
        self.run_program("inspect", "org/tiny", HF_ENDPOINT="http://127.0.0.1:9")

    def test_a_cache_without_listings_works_offline(self):
        self.download("org/tiny")
        shutil.rmtree(self.snapshot().parents[1] / "trees")  # older clients keep none
        out = self.run_program("inspect", "org/tiny", HF_ENDPOINT="http://127.0.0.1:9")
        self.assertIn("using what the cache holds of org/tiny", out)
        self.run_program("inspect", "org/tiny", HF_HUB_OFFLINE="1")

    def test_malformed_responses_are_reported(self):
        for match, body in (("/revision/", b"<html>"), ("/revision/", b'{"sha": "../../x"}'), ("/tree/", b"{}"),
                            ("/tree/", b'[{"type": "file"}]')):
            self.hub.fault(match, Status(200, body=body))
            self.download("org/tiny", status=1)
        self.downloads_in_spite_of("nothing", Drop())


class Refusals(HubTestCase):
    def test_missing_repositories_are_reported(self):
        out = self.download("org/absent", status=2)
        self.assertIn("model org/absent: the Hub at", out)
        self.assertIn("has no such model, or it is private", out)
        self.assertIn("set HF_TOKEN", self.download("org/absent", status=2, token=None))

    def test_private_repositories(self):
        self.hub.model("org/tiny", private=True).put(tiny_checkpoint())
        self.assertIn("no token was sent", self.download("org/tiny", status=2, token=None))
        self.download("org/tiny")

    def test_gated_repositories_give_advice(self):
        self.hub.model("org/tiny", gated=True).put(tiny_checkpoint())
        out = self.download("org/tiny", status=2, token=None)
        self.assertIn(f"accept its conditions at {self.hub.endpoint}/org/tiny", out)
        self.assertIn("of another user", self.download("org/tiny", status=2, token="hf_other"))

    def test_forbidden_access_gives_advice(self):
        self.hub.model("org/tiny").put(tiny_checkpoint())
        self.hub.fault("/revision/", Status(403, body=b'{"error": "no, because"}'))
        self.assertIn('does not allow to read it (it says "no, because")', self.download("org/tiny", status=2))

    def test_missing_revisions_list_the_branches(self):
        repository = self.hub.model("org/tiny")
        repository.branches["stage1-step-40000"] = repository.put(tiny_checkpoint())
        out = self.download("org/tiny", "--revision", "stage1-step-4000", status=2)
        self.assertIn('no revision "stage1-step-4000" (did you mean stage1-step-40000?)', out)
        self.assertIn("its branches: main, stage1-step-40000", out)

    def test_repositories_without_a_checkpoint_are_rejected(self):
        self.hub.model("org/tiny").put({"README.md": b"see the branches"})
        self.assertIn("expected a config.json; it holds README.md", self.download("org/tiny", status=2))
        self.hub.model("org/old").put({"config.json": b"{}", "consolidated.00.pth": b"pickle"})
        self.assertIn("expected model.safetensors", self.download("org/old", status=2))

    def test_torch_files_are_used_without_safetensors(self):
        self.hub.model("org/torch").put({"config.json": b"{}", "pytorch_model.bin": b"PK"})
        snapshot = pathlib.Path(self.download("org/torch").splitlines()[0])
        self.assertEqual(sorted(p.name for p in snapshot.iterdir()), ["config.json", "pytorch_model.bin"])

    def test_unsafe_paths_are_rejected(self):
        for name in ("../evil", "/etc/evil", "a/../../evil", "a//b", "..\\evil", "a/./b", "tab\there"):
            repo_id = f"org/m{abs(hash(name))}"
            self.hub.model(repo_id).put({**tiny_checkpoint(), name: b"x"})
            self.assertIn("not safe to store", self.download(repo_id, status=1), name)
        self.assertEqual([p for p in self.folder.rglob("*evil*")], [])

    def test_malformed_hashes_are_rejected(self):
        listing = [{"type": "file", "path": "config.json", "oid": "../../evil", "size": 2}]
        self.hub.model("org/tiny").put(tiny_checkpoint())
        self.hub.fault("/tree/", Status(200, body=json.dumps(listing).encode()))
        self.assertIn("not safe to store", self.download("org/tiny", status=1))

    def test_offline(self):
        self.hub.model("org/tiny").put(tiny_checkpoint())
        offline = {"HF_HUB_OFFLINE": "1"}
        self.assertIn("'qkscope hub download org/tiny'", self.run_program("inspect", "org/tiny", status=2, **offline))
        self.download("org/tiny", "--only", "config")
        self.hub.requests.clear()
        self.run_program("inspect", "org/tiny", **offline)
        out = self.run_program("trace", "--model", "org/tiny", "--text", "a", "--hooks", "logits", "--out", "x",
                               status=2, **offline)
        self.assertIn("the cache lacks model.safetensors, and HF_HUB_OFFLINE forbids", out)
        self.assertEqual(self.hub.requests, [])


class Trust(HubTestCase):
    def setUp(self):
        super().setUp()
        self.hub.model("org/tiny").put(tiny_checkpoint())

    def test_the_token_is_sent_to_the_endpoint_only(self):
        self.download("org/tiny", "-v")
        self.assertTrue(self.hub.asked("/objects/"))
        for request in self.hub.requests:
            self.assertEqual("authorization" in request.headers, request.server == "hub", request)

    def test_the_token_file_is_read(self):
        (self.folder / "home").mkdir()
        (self.folder / "home" / "token").write_text("hf_from_file\n")
        self.download("org/tiny", token=None)
        self.assertEqual(self.hub.requests[0].headers["authorization"], "Bearer hf_from_file")

    def test_a_token_with_line_breaks_is_rejected(self):
        out = self.download("org/tiny", status=2, token="hf_a\r\nX-Evil: 1")
        self.assertIn("HF_TOKEN: holds spaces or characters that no token has", out)
        self.assertNotIn("Evil", out)

    def test_plain_http_is_allowed_for_loopback_only(self):
        out = self.download("org/tiny", status=2, HF_ENDPOINT="http://hub.example")
        self.assertIn("HF_ENDPOINT: http://hub.example/ is not encrypted", out)
        self.hub.fault("/resolve/", Status(302, {"Location": "http://storage.example/x?signature=secret"}), times=9)
        out = self.download("org/tiny", status=1)
        self.assertIn("http://storage.example/x, which is not encrypted", out)
        self.assertNotIn("secret", out)

    def test_redirect_loops_are_detected(self):
        self.hub.fault("/revision/", Status(302, {"Location": "/api/models/org/tiny/revision/main"}), times=99)
        self.assertIn("redirects", self.download("org/tiny", status=1))

    def test_other_protocols_are_not_followed(self):
        self.hub.fault("/revision/", Status(302, {"Location": "file:///etc/passwd"}))
        self.assertIn("not an address", self.download("org/tiny", status=1))

    def test_listings_stay_on_the_endpoint(self):
        for place in ("/revision/", "/tree/"):
            self.hub.requests.clear()
            self.hub.fault(place, Status(302, {"Location": self.hub.storage + "/evil"}))
            self.assertIn("on to another server", self.download("org/tiny", status=1))
            self.assertEqual({request.server for request in self.hub.requests}, {"hub"})

    def test_an_empty_location_is_an_error(self):
        self.hub.fault("/revision/", Status(302, {"Location": ""}))
        self.assertIn("status 302", self.download("org/tiny", status=1))

    def test_cyclic_pagination_is_detected(self):
        page = "/api/models/org/tiny/tree/main?recursive=true&page=%d"
        self.hub.fault("/tree/", Status(200, {"Link": '<%s>; rel="next"' % (page % 1)}, body=b"[]"), times=9)
        self.assertIn("lead round in a circle", self.download("org/tiny", status=1))

    def test_the_number_of_pages_is_limited(self):
        for page in range(1001):
            link = '</api/models/org/tiny/tree/main?page=%d>; rel="next"' % page
            self.hub.fault("/tree/", Status(200, {"Link": link}, body=b"[]"))
        self.assertIn("does not end after 1000 pages", self.download("org/tiny", status=1))

    def test_certificates_are_verified(self):
        key, certificate = self.folder / "key.pem", self.folder / "certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-keyout", key,
                        "-out", certificate, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                       check=True, capture_output=True)
        silent = type("Silent", (http.server.BaseHTTPRequestHandler,), {"log_message": lambda *_: None})
        server = http.server.HTTPServer(("127.0.0.1", 0), silent)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        endpoint = f"https://localhost:{server.server_port}"
        out = self.download("org/tiny", status=1, HF_ENDPOINT=endpoint, SSL_CERT_FILE="")
        self.assertIn("certificate", out)
        self.assertIn("SSL_CERT_FILE", out)
        out = self.download("org/tiny", status=1, HF_ENDPOINT=endpoint, SSL_CERT_FILE=str(certificate))
        self.assertNotIn("certificate", out)
        self.assertIn("501", out)  # it was talked to, and has no answers


if __name__ == "__main__":
    main()
