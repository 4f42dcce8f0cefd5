"""Runs the tests of the room (test_store) with an S3 server in the place of a folder: room_test.py TEST_PROGRAM"""

import os
import subprocess
import sys

from s3_server import S3Server

server = S3Server(authenticated=True)
try:
    environment = dict(os.environ, QKSCOPE_TEST_STORE="s3://bucket", AWS_ENDPOINT_URL=server.endpoint,
                       AWS_ACCESS_KEY_ID=server.key, AWS_SECRET_ACCESS_KEY=server.secret,
                       AWS_EC2_METADATA_DISABLED="true", NO_PROXY="127.0.0.1")
    sys.exit(subprocess.run([sys.argv[1], "--gtest_brief=1", *sys.argv[2:]], env=environment).returncode)
finally:
    server.stop()
