"""Commands, environments, calls and process trees of servers, without vLLM itself."""

import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from rollout.types import SamplingParams
from rollout.vllm import server as vllm_server
from rollout.vllm import supervisor
from rollout.vllm.client import OutOfStep, ServerGone, VllmClient, api_key
from rollout.vllm.server import ServerFailed, ServerProcess, ServerSpec
from tests import other_processes
from tests.other_processes import eventually, is_running, make_program


def _spec(**changes):
    return ServerSpec(python="python", model="model", max_model_len=64, **changes)


def test_a_public_address_requires_a_key():
    with pytest.raises(ValueError, match=r"host=0\.0\.0\.0: .* set VLLM_API_KEY"):
        _spec(host="0.0.0.0")
    spec = _spec(host="0.0.0.0", api_key="secret")
    arguments = vllm_server.command(spec, port=1)
    assert "rollout.vllm.extension.RequireKey" in arguments
    # Arguments are readable by every user of the machine, the environment is not.
    assert "secret" not in arguments
    assert vllm_server.environment(spec)["VLLM_API_KEY"] == "secret"


def test_a_folder_is_made_absolute_and_a_hub_id_is_not(tmp_path, monkeypatch):
    (tmp_path / "policy").mkdir()
    monkeypatch.chdir(tmp_path)
    for model, given in (("policy", str(tmp_path / "policy")), ("a/b", "a/b")):
        spec = dataclasses.replace(_spec(), model=model)
        arguments = vllm_server.command(spec, port=1)
        assert arguments[arguments.index("--model") + 1] == given


@pytest.mark.failure(140)
def test_a_line_break_is_not_part_of_a_key(monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "secret\n")
    assert api_key() == "secret"


def test_a_key_is_given_by_the_environment_alone(monkeypatch, capsys):
    for words in (["--api_key", "secret"], ["--api-key=secret"]):
        given = ["server", "--model", "m", "--max_model_len", "64", *words]
        monkeypatch.setattr(sys, "argv", given)
        with pytest.raises(SystemExit):
            vllm_server.main()
        assert "--api-key: set VLLM_API_KEY in" in capsys.readouterr().err


@pytest.mark.failure(200)
def test_a_home_folder_is_expanded_in_the_path_of_a_model(monkeypatch, tmp_path):
    """A shell leaves `--model=~/base` as it is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "base").mkdir()
    flags = "--model=~/base", "--max_model_len", "64"
    monkeypatch.setattr(sys, "argv", ["server", *flags])
    ran = []
    monkeypatch.setattr(os, "execve", lambda *command: ran.append(command[1]))
    vllm_server.main()
    assert str(tmp_path / "base") in ran[0]


@pytest.mark.failure(205)
def test_the_server_sees_its_devices_and_nothing_of_jax(monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.4")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    monkeypatch.setenv("HF_HOME", "/models")
    for secret in ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(secret, "secret")
    monkeypatch.setenv("VLLM_PORT", "tcp://10.0.0.1:8000")
    found = vllm_server.environment(_spec(devices=(2, 3)))
    assert found["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert not [key for key in found if key.startswith(("XLA_", "JAX_"))]
    assert not {"HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY"} & found.keys()
    assert found["HF_HOME"] == "/models" and "PATH" in found
    assert "PYTHONSTARTUP" not in found and "VLLM_PORT" not in found
    arguments = vllm_server.command(_spec(devices=(2, 3)), port=1)
    assert arguments[arguments.index("--tensor-parallel-size") + 1] == "2"


def test_on_cpus_one_process_uses_all_cores_by_default(monkeypatch):
    for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(vllm_server, "usable_cores", lambda: 5)
    found = vllm_server.environment(_spec())
    assert found["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert found["OMP_NUM_THREADS"] == "5"
    on_gpus = vllm_server.environment(_spec(devices=(0, 1)))
    assert not {"VLLM_ENABLE_V1_MULTIPROCESSING", "OMP_NUM_THREADS"} & on_gpus.keys()
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = vllm_server.environment(_spec())
    assert found["VLLM_ENABLE_V1_MULTIPROCESSING"] == "1"
    assert found["OMP_NUM_THREADS"] == "3"


def _server(tmp_path, script=""):
    program = make_program(tmp_path / "vllm", script)
    spec = dataclasses.replace(_spec(), python=str(program))
    return ServerProcess(spec, log_file=tmp_path / "log")


def test_a_start_that_fails_shows_the_end_of_its_log(tmp_path):
    server = _server(tmp_path, "echo first; echo no such accelerator; exit 3")
    server.start()
    with pytest.raises(ServerFailed, match=r"with status 3(.|\n)*no such accelerator"):
        server.wait_ready(20)


@pytest.mark.failure(212)
def test_a_server_that_was_killed_may_lack_memory(tmp_path):
    server = _server(tmp_path, "echo loading; kill -9 $$")
    server.start()
    message = r"status 137 while starting \(killed, .*mem"
    with pytest.raises(ServerFailed, match=message):
        server.wait_ready(20)


@pytest.mark.failure(214)
def test_an_old_version_is_named(tmp_path):
    server = _server(tmp_path, "echo 'error: unrecognized arguments: --new'; exit 2")
    server.start()
    with pytest.raises(ServerFailed, match=r"arguments: --new .*; use vLLM 0.32 or"):
        server.wait_ready(20)


def test_a_start_that_takes_too_long_is_ended(tmp_path):
    server = _server(tmp_path, "echo loading; sleep 600")
    server.start()
    root = server.pid
    while "loading" not in (tmp_path / "log").read_text():
        time.sleep(0.05)  # a busy machine starts even a shell late
    with pytest.raises(ServerFailed, match=r"not ready after 1 s(.|\n)*loading"):
        server.wait_ready(1)
    assert not pathlib.Path(f"/proc/{root}").exists()


@pytest.mark.failure(10)
def test_silence_ends_a_call():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = VllmClient(f"http://127.0.0.1:{silent.getsockname()[1]}")
        begin = time.monotonic()
        with pytest.raises(ServerGone, match="no answer .*timed out"):
            client.call("GET", "/health", timeout=1.5)
        assert 1.4 < time.monotonic() - begin < 20


def test_closing_a_client_ends_its_calls_and_later_ones():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = VllmClient(f"http://127.0.0.1:{silent.getsockname()[1]}")
        threading.Timer(0.5, client.close).start()
        for _ in range(2):
            with pytest.raises(ServerGone, match="no answer"):
                client.call("GET", "/health", timeout=None)


@pytest.mark.parametrize(
    ("spans", "found"),
    [
        ([(0, 4, 7)], [7, 7, 7, 7]),
        ([(0, 3, 7), (3, 4, 8)], [7, 7, 7, 8]),
        ([(0, 3, 7)], "1 of 4 tokens, the first at index 3"),
        ([(1, 4, 7)], "1 of 4 tokens, the first at index 0"),
        ([(0, 1, 7), (3, 4, 8)], "2 of 4 tokens, the first at index 1"),
        ([], "4 of 4 tokens, the first at index 0"),
    ],
)
def test_a_token_without_a_version_is_rejected(spans, found):
    versions = [
        {"start": start, "end": end, "version": str(version)}
        for start, end, version in spans
    ]
    choice = {"token_ids": [1, 2, 3, 4], "finish_reason": "length"}
    choice["logprobs"] = {"content": [{"logprob": -1.0}] * 4}
    choice["weight_versions"] = versions
    params = SamplingParams(max_tokens=4, stop_token_ids=(9,))
    client = VllmClient("http://127.0.0.1:1")
    client.call = lambda *_, **__: {"choices": [choice]}
    if isinstance(found, str):
        with pytest.raises(OutOfStep, match=f"no version for {found}; "):
            client.generate([0], params, seed=0, version_of=int)
    else:
        drawn = client.generate([0], params, seed=0, version_of=int)
        assert drawn.versions.tolist() == found


# A tree like vLLM's: the root's child starts a grandchild in a session of its own, and
# both ignore the polite signal.
TREE = """
    import os, signal, subprocess, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if len(sys.argv) == 2:
        own = open(sys.argv[1]).read()
        subprocess.Popen([sys.executable, "-S", "-c", own, "x", "y"],
                         start_new_session=True)
    time.sleep(600)
"""
STARTER = """
    import pathlib, sys, time
    from rollout.vllm.server import ServerSpec, ServerProcess
    program, tmp = sys.argv[1], pathlib.Path(sys.argv[2])
    spec = ServerSpec(python=program, model="m", max_model_len=64)
    server = ServerProcess(spec, log_file=tmp / "log")
    server.start()
    print(server.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.failure(11)
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGTERM])
def test_the_process_tree_ends_with_its_starter(tmp_path, blow):
    script = tmp_path / "tree.py"
    script.write_text(textwrap.dedent(TREE))
    command = f"exec {sys.executable} -S {script} {script}"
    program = make_program(tmp_path / "vllm", command)
    starter = other_processes.start_python("-c", STARTER, program, tmp_path)
    root = int(starter.stdout.readline())
    eventually(lambda: len(supervisor.descendants(root)) == 2, seconds=10)
    tree = [root, *supervisor.descendants(root)]
    starter.send_signal(blow)
    starter.wait()
    paths = [pathlib.Path(f"/proc/{pid}") for pid in tree]
    eventually(lambda: not any(path.exists() for path in paths), seconds=10)


def test_stop_ends_what_a_killed_supervisor_left(tmp_path):
    server = _server(tmp_path)
    shell = "sleep 600 & sleep 600 & wait"
    server._process, server._lifeline = supervisor.start(["sh", "-c", shell])
    eventually(lambda: len(supervisor.descendants(server.pid)) == 3, seconds=10)
    tree = supervisor.descendants(server.pid)
    os.kill(server.pid, signal.SIGKILL)
    server._process.wait()
    # The shell had the kernel's word for it; what the shell began had none.
    assert sum(map(is_running, tree)) >= 2
    server.stop(at_once=True)
    server.stop()
    assert not any(map(is_running, tree))


def test_a_supervisor_that_is_dying_is_stopped_like_a_dead_one(tmp_path):
    server = _server(tmp_path)
    # Between a kill and its end a process has closed its files and is not yet over.
    reading, server._lifeline = os.pipe()
    os.close(reading)
    server._process = subprocess.Popen(["sleep", "0.5"], start_new_session=True)
    server.stop(at_once=True)
    assert server._process.returncode == 0
    assert server.pid is None


@pytest.mark.parametrize("url", ["https://a:8000", "a:8000", "http://a:80a", "http://"])
def test_a_malformed_address_is_refused_with_its_key(url):
    with pytest.raises(ValueError, match=f"{url}': must be http://HOST:PORT; correct"):
        VllmClient(url)


def test_the_client_side_imports_no_torch_and_no_jax():
    code = (
        "import sys, rollout.vllm.fan_out, rollout.vllm.server;"
        "print(sorted({'torch', 'vllm', 'jax'} & set(sys.modules)))"
    )
    env = {"PATH": os.environ["PATH"]}
    found = other_processes.python("-c", code, env=env, check=True)
    assert found.stdout.strip() == "[]"
