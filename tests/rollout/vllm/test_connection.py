"""Versions reach a server that shares no folder, over HTTP: all of them, or refused."""

import contextlib
import http.client
import pathlib
import re
import socket
import struct
import threading
import time
import urllib.parse

import numpy as np
import pytest

from rollout.vllm import places
from rollout.vllm.file_server import FileServer
from rollout.vllm.mirror import FileSource
from rollout.vllm.places import check_beacon, find
from rollout.vllm.weight_sync import ServedFiles
from tests.rollout.vllm.test_mirror import SHAPES, Trainer

KEY = "the run's key"


class Proxy:
    """A network between a server and the trainer, with faults to order.

    Attributes:
      cuts: after how many bytes towards the server each connection in turn breaks.
      on_cut: called before a connection breaks.
      flip: place of a byte to flip, counted from the first of the next connection.
      moved: bytes that went towards the server.
      asked: first and last byte of each range that it asked for.
    """

    def __init__(self, url, *, how="closed"):
        self._to = urllib.parse.urlsplit(url)
        self._how = how
        self.cuts, self.on_cut, self.flip = [], lambda: None, None
        self.moved, self.asked = 0, []
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def told(self, told):
        """What a server is told, by way of this proxy."""
        port = self._listener.getsockname()[1]
        urls = {f: told[f].replace(str(self._to.port), str(port)) for f in FILES}
        return told | urls

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((self._to.hostname, self._to.port))
                cut = self.cuts.pop(0) if self.cuts else None
                for act in ((self._up, near, far), (self._down, far, near, cut)):
                    threading.Thread(target=act[0], args=act[1:], daemon=True).start()

    def _up(self, near, far):
        with contextlib.suppress(OSError):
            while data := near.recv(1 << 16):
                found = re.search(rb"Range: bytes=(\d+)-(\d+)", data)
                self.asked.append((int(found[1]), int(found[2])))
                far.sendall(data)
            far.close()

    def _down(self, far, near, left):
        with contextlib.suppress(OSError):
            while data := bytearray(far.recv(1 << 16 if left is None else left)):
                if self.flip is not None and self.flip < len(data):
                    data[self.flip] ^= 1
                    self.flip = None
                elif self.flip is not None:
                    self.flip -= len(data)
                near.sendall(data)
                self.moved += len(data)
                if left is not None and not (left := left - len(data)):
                    self.on_cut()
                    if self._how == "silent":
                        return
                    if self._how == "reset":
                        time.sleep(0.1)  # what is under way arrives first
                        gone = struct.pack("ii", 1, 0)
                        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, gone)
                        near.shutdown(socket.SHUT_RD)
                    else:
                        near.shutdown(socket.SHUT_RDWR)
                    break
            near.close()
            far.close()

    def close(self):
        self._listener.close()


FILES = ("whole", "delta")


class ServedTrainer(Trainer):
    def __init__(self, folder, **changes):
        super().__init__(folder, **changes)
        self.served = ServedFiles(self.files, url="http://127.0.0.1:0", key=KEY)

    def stage(self, version):
        return self.served.stage(self.params, f"run:{version}")

    def take(self, mirror, told, key=KEY):
        whole, delta = (find(told[file], key=key) for file in FILES)
        source = FileSource(whole, delta, SHAPES, self.wire)
        return mirror.take(told["tensors"], source)


@pytest.fixture
def trainer(tmp_path):
    made = ServedTrainer(tmp_path / "weights")
    yield made
    made.served.close()


@pytest.mark.parametrize(("dtype", "rate"), [("bfloat16", 1e-6), ("float32", 1e-2)])
def test_mirrors_are_the_folders_bit_for_bit(tmp_path, dtype, rate):
    trainer = ServedTrainer(tmp_path / "weights", dtype=dtype, rate=rate)
    far, near = trainer.mirror(), trainer.mirror()
    for version in range(20):
        told = trainer.stage(version)
        assert all(told[file].startswith("http://127.0.0.1:") for file in FILES)
        of_folder = {f: str(trainer.files._folder / f"policy.{f}") for f in FILES}
        of_folder["whole"] = str(trainer.files._file)
        by_path = Trainer.take(trainer, near, told | of_folder)
        by_url = trainer.take(far, told)
        assert by_url == by_path and not by_url.healed
        assert (by_url.bytes < trainer.files.bytes / 4) == (version > 0 and rate < 1e-3)
        for name, tensor in near.tensors.items():
            assert tensor.tobytes() == far.tensors[name].tobytes()
        assert trainer.is_served(far)
        trainer.update()
    trainer.served.close()


@pytest.mark.failure(10)
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_a_broken_connection_goes_on_where_it_stopped(trainer, monkeypatch, how):
    monkeypatch.setattr(places, "_BLOCK", 1024)
    mirror, told = trainer.mirror(), trainer.stage(0)
    proxy = Proxy(told["whole"], how=how)
    proxy.cuts = [20_000, 3000, 10]
    lost = 0 if how == "closed" else 1024  # a block, at each break
    taken = trainer.take(mirror, proxy.told(told))
    assert taken.bytes == trainer.files.bytes and not taken.healed
    assert trainer.is_served(mirror)
    # The head, then the first tensor in three parts; what came did not come again.
    ranges = proxy.asked
    again = [
        (before, after)
        for before, after in zip(ranges, ranges[1:], strict=False)
        if before[1] == after[1]
    ]
    assert len(again) == 3
    assert again[0][1][0] - again[0][0][0] > 15_000
    assert again[1][1][0] - again[1][0][0] > 1000
    assert again[2][1][0] == again[2][0][0]  # cut within the answer's head
    size = trainer.files._file.stat().st_size
    assert proxy.moved < size + 200 * len(ranges) + 3 * lost
    # And so does a delta.
    trainer.update()
    told = trainer.stage(1)
    before = proxy.moved
    proxy.cuts = [400, 300]
    taken = trainer.take(mirror, proxy.told(told))
    assert not taken.healed and trainer.is_served(mirror)
    assert proxy.moved - before < taken.bytes + 200 * 6 + 2 * lost
    proxy.close()


@pytest.mark.failure(10)
def test_a_connection_that_falls_silent_counts_as_broken(trainer, monkeypatch):
    monkeypatch.setattr(places, "_BLOCK", 1024)
    monkeypatch.setattr(places, "_SILENCE", 1.0)
    mirror, told = trainer.mirror(), trainer.stage(0)
    proxy = Proxy(told["whole"], how="silent")
    proxy.cuts = [20_000]
    taken = trainer.take(mirror, proxy.told(told))
    assert taken.bytes == trainer.files.bytes and trainer.is_served(mirror)
    parts = [first for first, last in proxy.asked if last == proxy.asked[2][1]]
    assert len(parts) > 1 and parts[1] - parts[0] > 15_000
    proxy.close()


@pytest.mark.failure(8)
def test_a_flipped_byte_is_refused_and_healed_by_the_whole_tensor(trainer):
    mirror = trainer.mirror()
    trainer.take(mirror, trainer.stage(0))
    trainer.update()
    told = trainer.stage(1)
    proxy = Proxy(told["whole"])
    proxy.flip = 150  # the answer's head has about 100 bytes
    taken = trainer.take(mirror, proxy.told(told))
    assert taken.healed.keys() == {"embed"}
    assert trainer.is_served(mirror)
    # A whole tensor has nothing behind it but the next version.
    fresh = trainer.mirror()
    proxy = Proxy(told["whole"])
    proxy.flip = trainer.files.bytes // 2
    with pytest.raises(ValueError, match="is corrupted or stale: digest"):
        trainer.take(fresh, proxy.told(told))
    trainer.update()
    told = trainer.stage(2)
    for late in (mirror, fresh):
        assert not trainer.take(late, told).healed
        assert trainer.is_served(late)


@pytest.mark.failure(8)
def test_a_version_that_is_superseded_is_refused_and_the_next_one_mends_it(trainer):
    mirror, old = trainer.mirror(), trainer.stage(0)
    proxy, told = Proxy(old["whole"]), []
    proxy.cuts = [10_000]
    # The next one is staged while the last is under way.
    trainer.update()
    proxy.on_cut = lambda: told.append(trainer.stage(1))
    with pytest.raises(ValueError, match="404 .* superseded by a later version"):
        trainer.take(mirror, proxy.told(old))
    assert trainer.take(mirror, told[0]).bytes == trainer.files.bytes
    assert trainer.is_served(mirror)
    with pytest.raises(ValueError, match="404 .* superseded by a later version"):
        trainer.take(trainer.mirror(), old)


def test_whoever_reads_a_version_is_cut_off_when_it_is_withdrawn(tmp_path):
    path = tmp_path / "weights"
    with path.open("wb") as file:
        file.truncate(1 << 27)
    server = FileServer("127.0.0.1", 0, KEY)
    url = server.offer(str(path))
    connection = _ask(url, KEY, f"bytes=0-{(1 << 27) - 1}")
    answer = connection.getresponse()
    assert len(answer.read(1 << 20)) == 1 << 20
    server.withdraw(url)
    with pytest.raises(http.client.IncompleteRead):
        answer.read()
    server.close()


def _ask(url, key, asked="bytes=0-7", path=None):
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    headers = {"Range": asked}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    connection.request("GET", path or parts.path, headers=headers)
    return connection


@pytest.mark.parametrize("key", [None, "", "another", KEY[:-1], KEY + "x"])
def test_without_the_key_nothing_leaves(trainer, key):
    told = trainer.stage(0)
    for url in (told["whole"], told["delta"], trainer.served.hello()["beacon"]):
        for path in (None, "/nothing"):
            answer = _ask(url, key, path=path).getresponse()
            assert (answer.status, answer.read()) == (401, b"wrong API key")
            assert answer.getheader("Content-Range") is None
    if key:
        with pytest.raises(ValueError, match="401 wrong API key"):
            trainer.take(trainer.mirror(), told, key=key)
    elif key == "":
        with pytest.raises(ValueError, match="key: start this server with VLLM_API_K"):
            trainer.take(trainer.mirror(), told, key=key)


def test_only_what_is_on_offer_can_be_asked_for(trainer, tmp_path):
    (tmp_path / "secret").write_text("a secret")
    told = trainer.stage(0)
    folder = urllib.parse.urlsplit(told["whole"]).path.rpartition("/")[0]
    for path in (
        "/",
        folder,
        f"{folder}/../../secret",
        f"{folder}/..%2f..%2fsecret",
        "/../secret",
        f"/{tmp_path}/secret",
        f"{tmp_path}/secret",
        str(trainer.files._file),
        f"{folder}/beacon",
        f"{urllib.parse.urlsplit(told['whole']).path}?x",
        "http://127.0.0.1/secret",
    ):
        answer = _ask(told["whole"], KEY, path=path).getresponse()
        assert answer.status == 404 and b"secret" not in answer.read()
    for asked in ("", "bytes=0-", "bytes=-9", "bytes=5-4", "bytes=0-3,5-9", "bytes=x"):
        assert _ask(told["whole"], KEY, asked).getresponse().status == 416
    beyond = f"bytes=0-{trainer.files._file.stat().st_size}"
    assert _ask(told["whole"], KEY, beyond).getresponse().status == 416


def test_silent_strangers_hold_up_nobody(trainer):
    told, mirror = trainer.stage(0), trainer.mirror()
    parts = urllib.parse.urlsplit(told["whole"])
    silent = [socket.create_connection((parts.hostname, parts.port)) for _ in range(40)]
    begin = time.monotonic()
    trainer.take(mirror, told)
    assert trainer.is_served(mirror) and time.monotonic() - begin < 10
    for stranger in silent:
        stranger.close()


@pytest.mark.failure(10)
def test_a_trainer_that_is_gone_is_waited_for_while_somebody_wants_it(trainer):
    url = trainer.stage(0)["whole"]
    trainer.served._server.close()
    into = np.empty(8, np.uint8)
    with pytest.raises(OSError, match=r"no answer \(ConnectionRefusedError"):
        find(url, key=KEY, patience=0).read(0, into)
    looks = iter([True, True, False])
    with pytest.raises(OSError, match="no answer"):
        find(url, key=KEY, wanted=lambda: next(looks)).read(0, into)
    assert next(looks, None) is None


def test_a_server_says_at_once_that_it_does_not_see_the_weights(trainer, tmp_path):
    hello = trainer.served.hello()
    check_beacon(hello["beacon"], hello["token"], key=KEY)
    check_beacon(trainer.files.hello()["beacon"], hello["token"], key="")
    unseen = "does not see the trainer's weights .*or a rollout.vllm.weight_url"
    for where, token, key in (
        (hello["beacon"], hello["token"], "another"),
        (hello["beacon"], hello["token"], ""),
        (hello["beacon"], "0" * 32, KEY),
        ("http://127.0.0.1:1/0/beacon", hello["token"], KEY),
        (str(tmp_path / "none"), hello["token"], KEY),
        (str(trainer.files._beacon), "0" * 32, KEY),
    ):
        with pytest.raises(ValueError, match=unseen):
            check_beacon(where, token, key=key)


@pytest.mark.parametrize(
    ("url", "key", "words"),
    [
        ("http://127.0.0.1:0", "", "the weights would be open .* set VLLM_API_KEY"),
        ("http://0.0.0.0:0", KEY, "an address that the servers reach"),
        ("127.0.0.1:8100", KEY, "expected http://host:port"),
        ("http://127.0.0.1", KEY, "expected http://host:port"),
        ("https://127.0.0.1:1", KEY, "expected http://host:port"),
        ("http://127.0.0.1:99999", KEY, "Port out of range"),
        ("http://198.51.100.1:8100", KEY, "Cannot assign requested address"),
        ("http://127.0.0.1:{taken}", KEY, "Address already in use"),
    ],
)
def test_where_it_cannot_listen_is_one_line(trainer, url, key, words):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        url = url.format(taken=holder.getsockname()[1])
        with pytest.raises(ValueError, match=words) as caught:
            ServedFiles(trainer.files, url=url, key=key)
    assert str(caught.value).startswith(f"config.rollout.vllm.weight_url={url!r}: ")
    assert "\n" not in str(caught.value)
    assert pathlib.Path(trainer.files._beacon).exists()
