"""The documents' first commands, from an empty home folder to a served model and back to nothing.

They use the port that the documents name, so that no two of these tests may run at once: tests of
one file are run by one worker.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.newcomer import documents
from tests.newcomer.machine import ORDINARY_USER, Machine, newcomer
from tests.newcomer.scenarios import MENTIONED
from tests.workloads.training.pictures import write_shapes

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1_800)]

UP, _ = documents.commands("local")
(CALL,) = documents.commands("call")
#: What each command prints, within the life of the stack that `make up` makes.
SAYS: Mapping[str, str] = {
    "make demo": r"accuracy through the endpoint: \d+/\d+ = 9\d\.\d\d%",
    "make status": r"endpoint +open +https://127\.0\.0\.1:8443/",
    "make token": r"^Authorization: Bearer [\w.-]+$",
    "make logs": r'"event":"serving"',
}


def served(machine: Machine) -> None:
    """Everything that looks at a served model works."""
    for command, pattern in SAYS.items():
        assert command in MENTIONED["local"]
        assert re.search(pattern, machine.run(command), re.MULTILINE), command
    answer = json.loads(machine.run(CALL).splitlines()[-1])
    assert answer["name"] == "digits"


def train_less(machine: Machine) -> None:
    """A quarter of the epochs that digits have by default, for what isn't about the model."""
    machine.run("make environment && .venv/bin/falaj config set training.epochs 20 --stack local")


def gone(machine: Machine) -> None:
    """Nothing is left: no state, no process, no change of the clone."""
    assert not machine.data.exists()
    assert machine.processes() == []
    assert machine.clean_status() == ""


def test_make_up_to_make_down(machine: Machine) -> None:
    printed = machine.run(UP)
    assert "Serving digits version 1 at https://localhost:8443/v2/models/digits/infer" in printed
    setup = printed.partition("[1/3]")[0].replace(str(machine.clone), ".").splitlines()
    assert max(map(len, setup)) <= 80
    assert machine.clean_status() == ""
    served(machine)
    assert re.search(r"(?m)^ +resources: \d+ unchanged$", machine.run(UP))
    machine.run("make down")
    gone(machine)


#: What the tutorial's commands come to, in their order: the status, and something that is printed.
TUTORIAL: Sequence[tuple[str, int, str]] = (
    ("make up", 0, "Serving digits version 1 at "),
    ("make status", 0, r"endpoint +open"),
    ("make demo", 0, r"accuracy through the endpoint: \d+/\d+ = 9\d"),
    ("falaj config set", 0, "epochs: 120"),
    ("make preview", 0, r"[1-9]\d* to (create|replace)"),
    ("make up", 0, "Serving digits version 2 at "),
    ("falaj runs list", 0, r"digits:2 \(production\)"),
    ("falaj runs compare", 0, r"(?m)^ +epochs +80 +120$"),
    ("make rollback", 0, "the server follows"),
    ("make preview", 0, r"(?m)^Policies +no violations: "),
    ("make up", 0, r"\d+ created"),
    ("falaj config set", 2, "westeurope"),
    ("make check", 0, "azure-smb"),
    ("make down", 0, "is down"),
    ("make down", 0, "is down"),
)


@pytest.mark.thorough
def test_the_tutorial(machine: Machine) -> None:
    commands = documents.commands("tutorial")
    for command, (start, status, pattern) in zip(commands, TUTORIAL, strict=True):
        assert start in command
        assert re.search(pattern, machine.run(command, status)), command
    assert not list(machine.data.glob("stacks/*"))
    assert machine.processes() == []
    assert machine.clean_status() == ""


def learn_a_text(machine: Machine) -> None:
    """Train language models, as their page says, in a clone that has its environment."""
    text = " ".join(f"{n} {['قهوة', 'شاي', 'تمر'][n * n % 3]}" for n in range(900))
    (machine.clone / "data" / "notes.txt").write_text(text, encoding="utf-8")
    new, put, up, shown, down = documents.commands("language")
    machine.run(new)
    assert "dataset: data/notes.txt" in machine.run(put)
    # Two of the sixty epochs that it has by default.
    machine.run(".venv/bin/falaj config set training.epochs 2 --stack notes")
    printed = machine.run(up)
    assert "Serving notes version 1 at https://localhost:8443/v1/completions" in printed
    assert "perplexity" in printed
    curl = printed.partition("Call it with curl:\n")[2].partition("\n\n")[0]
    (choice,) = json.loads(machine.run(curl))["choices"]
    assert len(choice["text"]) == 64
    assert re.search(r"through the endpoint: \d+/\d+ = \d+\.\d\d% right", machine.run(shown))
    machine.run(down)
    (machine.clone / "stacks" / "Pulumi.notes.yaml").unlink()
    taken, trained, listed = documents.commands("language-runs")
    assert "language of 'next' from 1 inputs" in machine.run(taken)
    (made,) = (machine.clone / "data" / "datasets").iterdir()
    trained = f"{trained.replace('DIGEST', made.name)} --epochs 2"
    assert "held-out nats_per_character" in machine.run(trained)
    assert "nats per character" in machine.run(listed)
    assert machine.clean_status() == ""


#: A network of its own that has nothing but this machine.
OFFLINE = ("unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--")


def needs(prefix: Sequence[str]) -> None:
    """Fail, not skip, where the kernel doesn't let tests have users or networks of their own."""
    done = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"this machine lets nobody have a namespace: {done.stderr}"


@contextmanager
def without_network() -> Iterator[list[str]]:
    """What puts commands into one network together that reaches nothing but itself."""
    needs(OFFLINE)
    holder = subprocess.Popen(
        [*OFFLINE, "sh", "-c", "ip link set lo up && echo up && exec sleep 3600"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        yield ["nsenter", "--target", str(holder.pid), "--net", *user, "--"]
    finally:
        holder.kill()
        holder.wait()


def learn_pictures(machine: Machine) -> None:
    """Train on pictures, as their page says, and make one as the page has a client make it."""
    new, put, up, shown, down = documents.commands("pictures")
    folder = write_shapes(machine.clone / "data" / "shapes", 30)
    machine.run(new)
    assert "dataset: data/shapes" in machine.run(put)
    printed = machine.run(up)
    assert "Serving shapes version 1 at https://localhost:8443/" in printed
    assert "32x32 pixels, red, green and blue" in printed
    assert re.search(r"accuracy through the endpoint: \d+/12 = (9|100)", machine.run(shown))
    program = documents.other("pictures", "python").replace(
        "new.jpg", str(folder / "circle" / "1.jpg")
    )
    asked = f"{program}\nimport json\nprint(json.dumps(image.ravel().tolist()))"
    (machine.home / "client.py").write_text(asked)
    data = machine.run(f".venv/bin/python '{machine.home}/client.py'").strip()
    body = machine.home / "body.json"
    tensor = f'"name":"image","datatype":"FP32","shape":[1,3,32,32],"data":{data}'
    body.write_text(f'{{"inputs":[{{{tensor}}}]}}')
    curl = printed.partition("Call it with curl:\n")[2].partition("\n\n")[0]
    assert '"circle"' in machine.run(f"{curl.partition('-d ')[0]}-d @'{body}'")
    assert json.loads(machine.run(curl))["model_name"] == "shapes"
    assert machine.clean_status() == ""
    machine.run(down)
    (machine.clone / "stacks" / "Pulumi.shapes.yaml").unlink()


@pytest.mark.thorough
def test_a_table_of_ones_own(tmp_path: Path) -> None:
    """That of an ordinary user, in a folder with a difficult name and a shell without a locale."""
    needs(ORDINARY_USER)
    make, listed, put, remove = documents.commands("table")
    with newcomer(tmp_path / "مشاريع فلج", "my clone, 'été' №1") as machine:
        machine.prefix = [*ORDINARY_USER, "sh", "-c", 'umask 077; exec "$@"', "sh"]
        machine.variables["LC_ALL"] = "C"
        machine.run(make)
        assert machine.clean_status() == ""
        file = machine.clone / "stacks" / "Pulumi.shop.yaml"
        table = documents.other("table", "yaml")
        file.write_text(table)
        rows = ["age,plan,churned", *(f"{20 + n % 50},{'ab'[n % 2]},{n % 2}" for n in range(120))]
        (machine.clone / "data").mkdir()
        (machine.clone / "data" / "customers.csv").write_text("\n".join(rows) + "\n")
        assert machine.clean_status() == "", "data of one's own can't be added by accident"
        assert "data/customers.csv" in machine.run(listed)
        assert "epochs: 5" in machine.run(put)
        assert "removed:" in machine.run(remove)
        assert file.read_text().replace("  falaj:keepVersions: 3\n", "") == table
        (up,) = MENTIONED["table"]
        printed = machine.run(up)
        assert "Serving customers version 1 at https://localhost:8444/" in printed
        assert "accuracy through the endpoint" in machine.run("make demo STACK=shop")
        # What was printed can be pasted, from the folder where it was printed.
        curl = printed.partition("Call it with curl:\n")[2].partition("\n\n")[0]
        assert json.loads(machine.run(curl))["model_name"] == "customers"
        client = printed.partition("Call it with tritonclient:\n")[2].partition("\nEOF")[0]
        assert "label [" in machine.run(f"{client}\nEOF")
        machine.run("make down STACK=shop")
        learn_a_text(machine)
        learn_pictures(machine)
        file.unlink()
        gone(machine)


def _is_private(folder: Path, top: Path) -> bool:
    """Whether nobody else can come to what lies in a folder: it, or one above, is closed."""
    while True:
        if not folder.stat().st_mode & (stat.S_IRWXO | stat.S_IRWXG):
            return True
        if folder == top:
            return False
        folder = folder.parent


#: What the documents have one type in the shell that `make shell` opens.
TYPED = (
    "pulumi preview", "pulumi stack output", "pulumi up --yes",
    "falaj token --scope observe --minutes 10", "falaj completion bash",
)  # fmt: skip


@pytest.mark.thorough
def test_an_interrupted_up_goes_on_and_a_shell_and_then_no_network(
    machine: Machine, tmp_path: Path
) -> None:
    """Ctrl-C on a terminal, while the model is being trained; that is one's own afterwards."""
    shown = machine.type(UP, [("epoch ", "\x03")])
    assert "Error 130" in shown  # as make reports it
    end = shown.rpartition("stopping:")[2]
    assert "which is kept" in end
    assert "run it again to go on from here: make up" in end
    assert "Outputs" not in shown
    assert "Traceback" not in shown
    again = machine.type(UP, columns=80)
    assert "[exit 0]" in again
    assert "Serving digits version 1" in again
    # What a terminal of 80 columns shows in passing isn't wrapped by it.
    passing = re.findall(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] ([^\r\n\x1b]*)", shown + again)
    assert passing
    assert max(map(len, passing)) <= 78
    assert set(TYPED) <= set(MENTIONED["local"])
    lines = "\n".join(f"{command} || echo FAILED" for command in TYPED)
    said = machine.run(f"make shell <<'END'\n{lines}\nEND")
    assert "FAILED" not in said
    assert "Authorization: Bearer " in said
    assert "_FALAJ_COMPLETE" in said
    (audit,) = MENTIONED["audit"]
    (logs,) = machine.data.glob("**/service/*/logs")
    assert "intact: " in machine.run(audit.replace("DIR", shlex.quote(str(logs))))
    assert "made stacks/Pulumi.shop.yaml" in machine.run("make new STACK=shop")
    (machine.clone / "stacks" / "Pulumi.shop.yaml").unlink()
    # On a terminal it says what goes, and asks; anything but a yes is a no.
    kept = machine.type("make down", [("Type yes to go on:", "n\n")])
    assert "nothing was destroyed" in kept
    assert re.search(r"KeyRing|Dataset|ModelPackage", kept)
    assert "[exit 0]" in machine.type("make down", [("Type yes to go on:", "yes\n")])
    gone(machine)
    up_without_network(machine, tmp_path)


def up_without_network(machine: Machine, tmp_path: Path) -> None:
    """With what is installed, by who has a careless umask and a backend of their own."""
    train_less(machine)
    backend = tmp_path / "my backend"
    backend.mkdir()
    machine.variables["PULUMI_BACKEND_URL"] = backend.as_uri()
    with without_network() as prefix:
        machine.prefix = [*prefix, "sh", "-c", 'umask 000; exec "$@"', "sh"]
        # Its secrets are its owner's as well: without a passphrase nothing is begun.
        refused = machine.run(UP, 2)
        assert "PULUMI_CONFIG_PASSPHRASE" in refused
        machine.variables["PULUMI_CONFIG_PASSPHRASE"] = "correct horse"
        assert "Serving digits version 1" in machine.run(UP)
        assert list(backend.rglob("local.json"))
        served(machine)
        open_to_all = [
            path
            for path in (machine.data, *machine.data.rglob("*"))
            if not path.is_symlink() and path.stat().st_mode & (stat.S_IRWXO | stat.S_IRWXG)
        ]
        inside_private = [each for each in open_to_all if _is_private(each.parent, machine.data)]
        assert [each for each in open_to_all if each not in inside_private] == []
        machine.run("make down")
        assert not list(backend.rglob("local.json"))
        assert machine.processes() == []
        assert machine.clean_status() == ""
