"""What a team's own code is kept from: hosts beyond this machine, and libraries that ask them."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import pytest

from falaj.workloads.errors import CodeError
from falaj.workloads.training import offline
from falaj.workloads.training.offline import NetworkError, wanted
from falaj.workloads.training.own_model import guarded


@pytest.mark.parametrize(
    "ask",
    [
        lambda: socket.getaddrinfo("model.invalid", 443),
        lambda: socket.getaddrinfo(b"model.invalid", "https"),
        lambda: socket.gethostbyname("model.invalid"),
        lambda: socket.create_connection(("192.0.2.1", 443), 0.01),
        lambda: socket.create_connection(("2001:db8::1", 443), 0.01),
        lambda: socket.create_connection(("localhost.model.invalid", 443), 0.01),
    ],
)
def test_another_host_is_not_even_looked_up(ask: Any) -> None:
    with (
        pytest.raises(NetworkError, match="of the network, which is kept from it"),
        offline.offline(),
    ):
        ask()


def test_this_machine_and_other_threads_are_not_kept() -> None:
    seen: list[BaseException] = []

    def ask() -> None:
        try:
            socket.getaddrinfo("192.0.2.1", 443)
        except OSError as error:
            seen.append(error)

    with socket.create_server(("127.0.0.1", 0)) as server, offline.offline():
        socket.create_connection(server.getsockname()[:2], 1).close()
        socket.getaddrinfo("localhost", 80)
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert seen == []
    socket.getaddrinfo("192.0.2.1", 443)  # afterwards the thread is free again


@pytest.mark.parametrize(
    "error",
    [
        OSError("We couldn't connect to 'https://huggingface.co' to load the files"),
        OSError("bert is not a local folder and is not a valid model identifier"),
        type("LocalEntryNotFoundError", (OSError,), {})("no file in the cache"),
        type("OfflineModeIsEnabled", (ConnectionError,), {})("no"),
    ],
)
def test_what_libraries_say_of_the_network_is_told_with_what_to_do(error: Exception) -> None:
    assert wanted(error)
    with (
        pytest.raises(CodeError, match="are read from folders of this machine") as caught,
        guarded("the model can't be made"),
    ):
        raise error
    assert "folder's path as an option of the model" in str(caught.value)


def test_other_errors_are_told_as_they_are() -> None:
    with pytest.raises(CodeError) as caught, guarded("the model can't be made"):
        raise OSError("no such file.")
    assert str(caught.value) == "the model can't be made: OSError: no such file"
    with (
        pytest.raises(CodeError, match=r"pinned in requirements\.txt in the folder"),
        guarded("the model can't be imported"),
    ):
        raise ModuleNotFoundError("No module named 'peft'")


def test_a_network_that_is_asked_for_is_refused_by_its_name() -> None:
    with (
        pytest.raises(CodeError, match=r"made: it wants model\.invalid:443 of the network"),
        guarded("the model can't be made"),
    ):
        socket.getaddrinfo("model.invalid", 443)


def test_libraries_are_told_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in offline.VARIABLES:
        monkeypatch.setenv(name, "0")
    offline.set_variables()
    assert {name: os.environ[name] for name in offline.VARIABLES} == offline.VARIABLES
    assert offline.VARIABLES["HF_HUB_OFFLINE"] == "1"
