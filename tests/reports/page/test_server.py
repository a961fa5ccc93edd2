"""The served page: on this machine alone, and as new as the runs."""

import json
import threading
import urllib.error
import urllib.request

import pytest

from nccl_tf.experiment.run.record import write_record
from nccl_tf.reports.page.server import Follower, make_server
from tests.experiment import sample
from tests.reports.page.samples import write_steps


@pytest.fixture
def address(tmp_path):
    follower = Follower(tmp_path / "runs", lambda record: record["method"] != "agem")
    with make_server(follower) as server:
        assert server.server_address[0] == "127.0.0.1"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def get(address, path="/data.json", **headers):
    request = urllib.request.Request(address + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, dict(reply.headers), reply.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def test_it_follows_the_runs(address, tmp_path):
    status, headers, content = get(address)
    assert (status, json.loads(content)["groups"]) == (200, [])
    tag = headers["ETag"]
    assert get(address, **{"If-None-Match": tag})[0] == 304
    write_record(sample.record(method="er_ring"), tmp_path / "runs" / "a")
    write_record(sample.record(method="agem"), tmp_path / "runs" / "b")
    write_steps(tmp_path / "runs" / "c" / "seed0", [1.0, 2.0])
    status, headers, content = get(address, **{"If-None-Match": tag})
    data = json.loads(content)
    assert status == 200 and headers["ETag"] != tag
    assert [group["method"] for group in data["groups"]] == ["ER-Ring"]
    assert data["live"]["unfinished"] == [["c/seed0", 20]]
    write_record(sample.record(method="er_ring", seed=1), tmp_path / "runs" / "c" / "seed0")
    data = json.loads(get(address)[2])
    assert data["live"]["unfinished"] == [] and data["groups"][0]["rows"] == [0, 1]


def test_it_serves_two_addresses_and_no_files(address, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "secret.txt").write_text("secret")
    status, headers, content = get(address, "/")
    assert (status, headers["X-Frame-Options"]) == (200, "DENY")
    assert b"connect-src &#39;self&#39;" in content and b'data-live="yes"' in content
    for path in ("/secret.txt", "/../secret.txt", "/data.json/..", "/?x"):
        status, _, content = get(address, path)
        assert (status, b"secret" in content) == (404, False), path


def test_a_name_that_leads_here_may_not_read(address):
    for host in ("evil.example", "127.0.0.1", "127.0.0.1:1", ""):
        status, _, content = get(address, Host=host)
        assert (status, b"groups" in content) == (403, False), host
    port = address.rpartition(":")[2]
    assert get(address, Host=f"localhost:{port}")[0] == 200


def test_odd_files_end_nothing(address, tmp_path):
    import os

    folder = tmp_path / "runs" / "a"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text("{")
    os.mkfifo(tmp_path / "runs" / "steps.csv")
    (folder / "steps.csv").write_text("step\nx\n")
    data = json.loads(get(address)[2])
    assert data["groups"] == [] and data["live"]["unfinished"] == [[".", 0]]
