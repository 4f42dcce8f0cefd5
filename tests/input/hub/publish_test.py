"""Publishes captures to the fake Hub."""

import json
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hub_test_case import HubTestCase, main  # noqa: E402
from stand_in_server import After, Body, Drop, Status  # noqa: E402
from stand_in_repository import File  # noqa: E402

REPO = "org/vectors"


class PublishTestCase(HubTestCase):
    def publish(self, root="capture", branch="tiny-texts", **options):
        return self.run_program("hub", "publish", self.folder / root, "--repo", REPO, "--branch", branch, **options)

    @property
    def repository(self):
        return self.hub.repositories[("datasets", REPO)]

    def contents(self, root="capture"):
        folder = self.folder / root
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def assert_published(self, root="capture", branch="tiny-texts", others=frozenset()):
        there = self.repository.files(branch)
        there.pop(".gitattributes", None)
        for name in others:
            there.pop(name)
        self.assertEqual(there.keys(), self.contents(root).keys())
        self.assertEqual(there, self.contents(root))

    def commits(self, branch="tiny-texts"):
        return [sha for name, sha in self.repository.log if name == branch]


class Publishing(PublishTestCase):
    def test_one_commit_on_a_branch_and_a_card_on_main(self):
        self.capture()
        out = self.publish()
        self.assertIn(f"{self.hub.endpoint}/datasets/{REPO}/tree/tiny-texts: ", out)
        self.assert_published()
        self.assertEqual(len(self.commits()), 1)
        self.assertEqual(set(self.repository.files("main")), {".gitattributes", "README.md"})
        self.assertIn(f'load_dataset("{REPO}"', self.repository.files("main")["README.md"].decode())
        self.assertFalse(self.repository.private)

    def test_publishing_again_uploads_nothing(self):
        self.capture()
        self.publish()
        self.hub.requests.clear()
        self.assertIn("nothing to do", self.publish())
        self.assertEqual([r for r in self.hub.requests if r.method != "GET"], [])

    def test_a_new_capture_uploads_changes_and_removes_stale_files(self):
        self.capture("capture", heads=4)
        self.publish()
        self.capture("other", heads=2)
        before = len(self.hub.asked("/objects/", "PUT"))
        out = self.publish("other")
        self.assert_published("other")
        self.assertEqual(len(self.commits()), 2)
        self.assertRegex(out, r"[1-9]\d* removed")
        unchanged = self.contents("capture").items() & self.contents("other").items()
        sent = len(self.hub.asked("/objects/", "PUT")) - before
        large = [name for name in self.contents("other") if name.endswith(".parquet")]
        self.assertLessEqual(sent, len(large) - sum(name.endswith(".parquet") for name, _ in unchanged))

    def test_models_side_by_side(self):
        self.capture("capture")
        self.capture("other", heads=2)
        self.publish("capture", "one")
        self.publish("other", "two")
        self.assert_published("capture", "one")
        self.assert_published("other", "two")

    def test_main_when_no_branch_is_named(self):
        self.capture()
        self.run_program("hub", "publish", self.folder / "capture", "--repo", REPO)
        self.assert_published(branch="main")
        self.assertEqual(set(self.repository.branches), {"main"})

    def test_private_repositories(self):
        self.capture()
        self.run_program("hub", "publish", self.folder / "capture", "--repo", REPO, "--private")
        self.assertTrue(self.repository.private)
        self.repository.private = False
        out = self.run_program("hub", "publish", self.folder / "capture", "--repo", REPO, "--private", status=2)
        self.assertIn("it exists and is public", out)

    def test_a_capture_publishes_when_it_ends(self):
        publish = f", hf_repo_id: {REPO}, hf_branch: tiny-texts, private: true"
        out = self.capture(publish=publish)
        self.assertIn("/tree/tiny-texts: ", out)
        self.assert_published()
        self.assertTrue(self.repository.private)
        self.assertIn("nothing to do", self.capture(publish=publish))
        self.assertEqual(len(self.commits()), 1)

    def test_a_capture_without_a_token_gives_advice(self):
        out = self.capture(publish=f", hf_repo_id: {REPO}, hf_branch: tiny-texts", token=None)
        self.assertIn(f"'qkscope hub publish {self.folder}/capture'", out)
        self.assertEqual(self.hub.repositories, {})
        self.run_program("hub", "publish", self.folder / "capture")  # the state knows where to
        self.assert_published()

    def test_publishing_can_be_disabled(self):
        publish = f", hf_repo_id: {REPO}, hf_branch: tiny-texts"
        self.assertIn("not published: captured with --limit", self.capture(publish=publish, options=("--limit", 3)))
        self.capture("other", publish=publish, options=("--no-publish",))
        self.assertEqual(self.hub.repositories, {})

    def test_a_failed_upload_leaves_a_complete_capture(self):
        self.hub.may_write = False
        out = self.capture(publish=f", hf_repo_id: {REPO}", status=2)
        self.assertIn("the capture is whole in", out)
        self.assertIn("does not allow to write to it", out)
        self.hub.may_write = True
        self.run_program("hub", "publish", self.folder / "capture")
        self.assert_published(branch="main")

    def test_unrelated_files_are_not_uploaded(self):
        self.capture()
        (self.folder / "capture" / "notes.txt").write_text("mine")
        self.assertIn("not published: notes.txt", self.publish())
        self.assertNotIn("notes.txt", self.repository.files("tiny-texts"))


class Unfinished(PublishTestCase):
    def setUp(self):
        super().setUp()
        self.capture()
        self.root = self.folder / "capture"

    def assert_refused(self, words):
        self.assertIn(words, self.publish(status=2))
        self.assertEqual(self.hub.requests, [])

    def test_a_capture_without_state_file_is_rejected(self):
        (self.root / "_saver_state.json").unlink()
        self.assert_refused("holds no finished capture")

    def test_an_unfinished_capture_is_rejected(self):
        self.capture("other", options=("--shard", "0/2"))
        shutil.copytree(self.folder / "other" / ".parts", self.root / ".parts")
        self.assert_refused("the capture is not finished")

    def test_a_head_of_another_run_is_rejected(self):
        self.capture("other", heads=4, options=("--set", "capture.min_bucket_size=8"))
        other = self.folder / "other"
        shared = next(path for path in sorted(self.root.glob("l*")) if (other / path.name).exists())
        shutil.copy(other / shared.name / "data.parquet", shared / "data.parquet")
        self.assert_refused("not a whole capture")

    def test_an_extra_head_is_rejected(self):
        head = sorted(self.root.glob("l*"))[0]
        shutil.copytree(head, self.root / "l90h00q")
        self.assert_refused("l90h00q/data.parquet is of another run")

    def test_a_missing_head_is_rejected(self):
        shutil.rmtree(sorted(self.root.glob("l*"))[0])
        self.assert_refused("data.parquet is missing")

    def test_a_capture_of_another_program_is_rejected(self):
        state = self.root / "_saver_state.json"
        state.write_text(json.dumps({"model_name": "x"}))
        self.assert_refused("made by another program")

    def test_without_a_token(self):
        self.assertIn("no token to publish with", self.publish(status=2, token=None))

    def test_offline(self):
        self.assertIn("HF_HUB_OFFLINE is set", self.publish(status=2, HF_HUB_OFFLINE="1"))

    def test_publishing_requires_a_repository(self):
        self.assertIn("give --repo org/name", self.run_program("hub", "publish", self.root, status=2))
        self.assertIn("no such folder", self.run_program("hub", "publish", self.folder / "absent", status=2))


class Faults(PublishTestCase):
    def setUp(self):
        super().setUp()
        self.capture()

    def publishes_in_spite_of(self, match, action, times=1, method=None):
        self.hub.fault(match, action, times, method)
        self.publish()
        self.assert_published()
        self.assertEqual(len(self.commits()), 1)

    def test_dropped_connections_are_retried(self):
        for match in ("/api/repos/create", "/branch/", "/preupload/", "/objects/batch", "/verify/", "/refs"):
            self.hub.fault(match, Drop())
        self.publishes_in_spite_of("/objects/", Drop(), times=3, method="PUT")

    def test_transient_server_errors_are_retried(self):
        for match in ("/api/repos/create", "/branch/", "/preupload/", "/objects/batch", "/commit/"):
            self.hub.fault(match, Status(503, {"Retry-After": "0"}))
        self.publishes_in_spite_of("/objects/", Status(500, {"Retry-After": "0"}), times=3, method="PUT")

    def test_a_lost_response_causes_no_second_commit(self):
        self.publishes_in_spite_of("/commit/tiny-texts", After())
        self.assertEqual(len(self.hub.asked("/commit/tiny-texts")), 1)

    def test_a_lost_commit_is_retried(self):
        self.publishes_in_spite_of("/commit/tiny-texts", Drop())
        self.assertEqual(len(self.hub.asked("/commit/tiny-texts")), 2)

    def test_a_concurrent_commit_is_handled(self):
        self.publish()
        self.repository.commit("tiny-texts", {"LICENSE": File(b"x", False), "l99h00q/data.parquet": File(b"y", True)})
        self.hub.fault("/commit/tiny-texts", Status(412))
        self.publish()
        self.assert_published(others={"LICENSE"})

    def test_an_interrupted_upload_resumes(self):
        self.hub.fault("/verify/", Status(400), times=2)
        self.assertIn("the same command continues the upload", self.publish(status=1))
        self.assertEqual(self.commits(), [])
        stored = set(self.hub.objects)
        self.assertTrue(stored)
        self.hub.requests.clear()
        self.hub.faults.clear()
        self.publish()
        self.assert_published()
        self.assertEqual([r for r in self.hub.asked("/objects/", "PUT") if r.path.split("/")[2][:64] in stored], [])

    def test_one_failed_upload_stops_the_others(self):
        self.hub.upload_pause = 0.2
        self.hub.fault("/objects/", Status(400), times=1, method="PUT")
        self.assertIn("answers with status 400", self.publish(status=1))
        self.hub.upload_pause = 0.0
        self.publish()
        self.assert_published()

    def test_refused_uploads_are_reported(self):
        self.hub.may_write = False
        self.assertIn("does not allow to write to it", self.publish(status=2))
        self.hub.may_write = True
        self.assertIn("does not allow to write to it", self.publish(status=2, token="hf_other"))
        answer = {"objects": [{"oid": "0" * 64, "size": 1, "error": {"code": 422, "message": "too large"}}]}
        self.hub.fault("/objects/batch", Status(200, body=json.dumps(answer).encode()))
        self.hub.fault("/preupload/", Status(200, body=b'{"files": []}'))
        self.assertIn("does not say how to send", self.publish(status=1))

    def test_the_token_is_sent_to_the_endpoint_only(self):
        self.publish()
        uploads = self.hub.asked("/objects/", "PUT")
        self.assertTrue(uploads)
        for request in self.hub.requests:
            self.assertEqual("authorization" in request.headers, request.server == "hub", request)


class Multipart(PublishTestCase):
    HUB = {"multipart_from": 2000, "chunk": 1500}

    def test_multipart_uploads_work(self):
        self.capture()
        self.hub.fault("/parts/", Drop(), times=2)
        self.hub.fault("/parts/", Body(), times=1)
        self.publish()
        self.assert_published()
        self.assertTrue(self.hub.asked("/parts/", "PUT"))
        self.assertTrue(self.hub.asked("/complete/"))


if __name__ == "__main__":
    main()
