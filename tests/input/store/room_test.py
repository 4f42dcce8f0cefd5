"""Runs test_input_store against S3 and GCS servers instead of a local folder: room_test.py TEST_PROGRAM

S3 is moto with signatures checked; Google Cloud Storage is gcp-storage-emulator, whose objects are put by a lease.
"""

import http.server
import os
import subprocess
import sys
import threading

import gcp_storage_emulator.server

from s3_server import S3Server, free_port


def run(tests, address, **more):
    environment = dict(os.environ, QKSCOPE_TEST_STORE=address, NO_PROXY="127.0.0.1", **more)
    subprocess.run([sys.argv[1], "--gtest_brief=1", "--gtest_filter=" + tests], env=environment, check=True)


def s3():
    server = S3Server(authenticated=True)
    try:
        run("*", "s3://bucket", AWS_ENDPOINT_URL=server.endpoint, AWS_ACCESS_KEY_ID=server.key,
            AWS_SECRET_ACCESS_KEY=server.secret, AWS_EC2_METADATA_DISABLED="true")
    finally:
        server.stop()


def gcs():
    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_):
            pass  # clients end a download when they have what they want

    gcp_storage_emulator.server.server.HTTPServer = Server
    port = free_port()
    server = gcp_storage_emulator.server.create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket")
    server.start()
    try:
        # The emulator loses objects under concurrent puts; leases have a separate test.
        run("ObjectStore.*:StoredFolders.*:Garbage.*:-ObjectStore.ExactlyOneConditionalPutSucceeds", "gs://bucket",
            STORAGE_EMULATOR_HOST=f"http://127.0.0.1:{port}")
    finally:
        threading.Thread(target=server.stop, daemon=True).start()


s3()
gcs()
