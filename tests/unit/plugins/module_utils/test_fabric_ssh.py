# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys between nodes: what is written is what sshd and ssh take, and nothing of the user's is touched."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _fabric_ssh as fabric_ssh

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOQaHCsq8yopjyzLaxF+3va/bk01UvAfrNhk3d+ipSPK"
PEERS: dict[str, Any] = {
    "spark-02": {"addresses": ["192.168.100.2", "192.168.101.2"], "public_keys": {"models": KEY}, "host_keys": [KEY]},
    "spark-03": {"addresses": ["192.168.100.3"], "public_keys": {}, "host_keys": [KEY, KEY.replace("Qa", "Qb")]},
}
PARAMS = {
    "folder": "/home/spark/keys",
    "roots": {"models": "/home/spark/models"},
    "state": "present",
    "peers": PEERS,
    "user": "spark",
    "port": 22,
    "authorized_keys": "/home/spark/.ssh/authorized_keys",
}
needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="openssh-client is not installed")


def test_a_key_opens_one_folder_for_reading_from_the_fabric_alone() -> None:
    assert fabric_ssh.authorized_lines(PEERS, {"models": "/home/spark/models"}) == (
        'restrict,from="192.168.100.2,192.168.101.2",command="/usr/bin/rrsync -ro /home/spark/models" '
        f"{KEY} fabric:models@spark-02"
    )


def test_a_folder_of_any_name_reaches_the_shell_as_it_is() -> None:
    line = fabric_ssh.authorized_lines(PEERS, {"models": """/srv/a "b" $c 'd' \\e"""})
    option = line.split('command="', 1)[1].rsplit('" ssh-ed25519', 1)[0]
    # sshd knows \" alone; of what is left the shell makes words.
    command = option.replace('\\"', '"').replace("/usr/bin/rrsync -ro", "printf %s")
    assert subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout == (
        """/srv/a "b" $c 'd' \\e"""
    )


def test_known_hosts_have_every_address_and_key() -> None:
    lines = fabric_ssh.known_hosts(PEERS, 22).splitlines()
    assert lines[0] == f"192.168.100.2,192.168.101.2 {KEY}"
    assert len(lines) == 3
    assert fabric_ssh.known_hosts(PEERS, 2222).startswith("[192.168.100.2]:2222,[192.168.101.2]:2222 ")


@needs_ssh
def test_ssh_understands_its_configuration(tmp_path: Path) -> None:
    config = tmp_path / "models.conf"
    config.write_text(fabric_ssh.client_config("/home/s p/keys", "models", "spark", 2222), encoding="utf-8")
    argv = ["ssh", "-G", "-F", str(config), "192.168.100.2"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    for line in ("user spark", "port 2222", "identityfile /home/s p/keys/models", "stricthostkeychecking true"):
        assert line in shown
    assert "batchmode yes" in shown


@needs_ssh
def test_a_key_is_made_once_and_a_half_one_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    assert fabric_ssh.missing_keys(folder, ["models"]) == ["models"]
    fabric_ssh.make_key(folder, "models", "fabric")
    assert fabric_ssh.missing_keys(folder, ["models"]) == []
    assert stat.S_IMODE((folder / "models").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    first = fabric_ssh.public_part((folder / "models.pub").read_text(encoding="utf-8"))
    (folder / "models.pub").unlink()
    assert fabric_ssh.missing_keys(folder, ["models"]) == ["models"]
    fabric_ssh.make_key(folder, "models", "fabric")
    assert fabric_ssh.public_part((folder / "models.pub").read_text(encoding="utf-8")) != first
    assert sorted(path.name for path in folder.iterdir()) == ["models", "models.pub"]


def test_the_block_is_written_replaced_and_taken_out() -> None:
    own = "ssh-rsa AAAA me@home\n# a comment\n"
    with_one = fabric_ssh.with_block(own, "line one")
    assert with_one == own + f"{fabric_ssh.BEGIN}\nline one\n{fabric_ssh.END}\n"
    assert fabric_ssh.with_block(with_one, "line one") == with_one
    assert "line one" not in fabric_ssh.with_block(with_one, "line two")
    assert fabric_ssh.with_block(with_one, "") == own
    assert fabric_ssh.with_block("", "") == ""
    with pytest.raises(fabric_ssh.KeyFault, match="mend the file by hand"):
        fabric_ssh.with_block(f"{fabric_ssh.BEGIN}\nssh-rsa AAAA\n", "line")


def test_files_of_a_node_there_and_gone() -> None:
    there = {item["path"]: item for item in fabric_ssh.files(PARAMS, "")}
    assert sorted(there) == [
        "/home/spark/.ssh/authorized_keys",
        "/home/spark/keys/known_hosts",
        "/home/spark/keys/models.conf",
    ]
    assert {item["mode"] for item in there.values()} == {"0600"}
    access = there["/home/spark/.ssh/authorized_keys"]["content"]
    assert "/home/spark/.ssh/authorized_keys" not in {item["path"] for item in fabric_ssh.files(PARAMS, access)}
    gone = fabric_ssh.files({**PARAMS, "state": "absent", "peers": {}}, "ssh-rsa AAAA me@home\n" + access)
    assert gone[0]["content"] == "ssh-rsa AAAA me@home\n"
    assert {item["path"].rsplit("/", 1)[1] for item in gone if item.get("state") == "absent"} == {
        "known_hosts",
        "models",
        "models.pub",
        "models.conf",
    }


@pytest.mark.parametrize(
    ("roots", "word"),
    [
        ({"../x": "/srv"}, "name"),
        ({"known_hosts": "/srv"}, "name"),
        ({"models": "srv"}, "absolute"),
        ({"models": "/"}, "below /"),
        ({"models": "/srv/../etc"}, "absolute"),
        ({"models": "/srv\nssh-rsa AAAA"}, "absolute"),
    ],
)
def test_names_and_folders_that_would_open_more_are_refused(roots: dict[str, str], word: str) -> None:
    with pytest.raises(fabric_ssh.KeyFault, match=word):
        fabric_ssh.check_names(roots)


def test_what_is_no_key_is_refused() -> None:
    assert fabric_ssh.public_part(f"{KEY} someone@somewhere\n") == KEY
    for text in ("", "hello", 'command="x" ssh-ed25519 AAAA'):
        with pytest.raises(fabric_ssh.KeyFault, match="not a public key"):
            fabric_ssh.public_part(text)
