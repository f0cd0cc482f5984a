# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetching wheels: once, resumed, verified; and passing them on to another node."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_fetch as fetching
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_offer as offer
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _engine_wheelhouse as house
from ansible_collections.dgx_spark.vllm.plugins.module_utils._engine_lock import Wheel

from tests.unit.plugins.engine_makers import describe, serve, wheel


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "pause", lambda _attempt: None)


def make(folder: Path, count: int = 3, size: int = 200_000) -> list[Path]:
    return [wheel(folder, f"p{n}", "1", {f"p{n}/__init__.py": f"# {n}\n" + "x" * size * (n + 1)}) for n in range(count)]


def listed(paths: list[Path], url: str) -> list[Wheel]:
    return [describe(path, f"{url}/{path.name}") for path in paths]


def test_fetches_once(tmp_path: Path) -> None:
    paths = make(tmp_path / "www")
    with serve(tmp_path / "www") as index:
        wheels = listed(paths, index.url)
        total = sum(item.size for item in wheels)
        assert fetching.fetch(wheels, tmp_path / "house") == (total, 0, 0)
        assert fetching.fetch(wheels, tmp_path / "house") == (0, 0, total)
        assert index.sent == total
    for path in paths:
        assert (tmp_path / "house" / path.name).read_bytes() == path.read_bytes()


def test_goes_on_after_a_cut_without_bringing_a_byte_twice(tmp_path: Path) -> None:
    paths = make(tmp_path / "www", 1)
    with serve(tmp_path / "www") as index:
        wheels = listed(paths, index.url)
        index.cut_after = 50_000
        assert fetching.fetch(wheels, tmp_path / "house").fetched == wheels[0].size
        assert index.sent == wheels[0].size
        assert len(index.asked) == 2


def test_goes_on_where_a_killed_run_stopped(tmp_path: Path) -> None:
    paths = make(tmp_path / "www", 1)
    house_folder = tmp_path / "house"
    house_folder.mkdir()
    with serve(tmp_path / "www") as index:
        wheels = listed(paths, index.url)
        (house_folder / f"{wheels[0].sha256}.part").write_bytes(paths[0].read_bytes()[:70_000])
        assert fetching.fetch(wheels, house_folder).fetched == wheels[0].size - 70_000
        assert index.sent == wheels[0].size - 70_000


def test_a_server_without_ranges_starts_anew(tmp_path: Path) -> None:
    paths = make(tmp_path / "www", 1)
    with serve(tmp_path / "www") as index:
        index.ranges, index.cut_after = False, 10_000
        fetching.fetch(listed(paths, index.url), tmp_path / "house")
    assert (tmp_path / "house" / paths[0].name).read_bytes() == paths[0].read_bytes()


def test_wrong_content_is_never_kept(tmp_path: Path) -> None:
    good, bad = make(tmp_path / "www", 2)
    with serve(tmp_path / "www") as index:
        wheels = listed([good, bad], index.url)
        content = bytearray(bad.read_bytes())
        content[1000] ^= 1
        bad.write_bytes(content)
        with pytest.raises(fetching.FetchError, match="1 of 2 wheels") as error:
            fetching.fetch(wheels, tmp_path / "house")
    assert f"expected {wheels[1].sha256}" in str(error.value)
    assert (tmp_path / "house" / good.name).exists()
    assert not (tmp_path / "house" / bad.name).exists()


def test_everything_that_is_missing_is_named(tmp_path: Path) -> None:
    paths = make(tmp_path / "www", 3)
    with serve(tmp_path / "www") as index:
        wheels = listed(paths, index.url)
        for path in paths[1:]:
            path.unlink()
        with pytest.raises(fetching.FetchError) as error:
            fetching.fetch(wheels, tmp_path / "house")
    assert "2 of 3" in str(error.value)
    assert all(f"HTTP 404 from {index.url}/{path.name}" in str(error.value) for path in paths[1:])


def test_takes_from_other_folders_first(tmp_path: Path) -> None:
    paths = make(tmp_path / "seed", 2)
    wheels = listed(paths, "http://127.0.0.1:9")
    total = sum(item.size for item in wheels)
    assert fetching.fetch(wheels, tmp_path / "house", [tmp_path / "none", tmp_path / "seed"]) == (0, total, 0)
    assert paths[0].samefile(tmp_path / "house" / paths[0].name)


def test_a_wrong_file_in_another_folder_is_passed_over(tmp_path: Path) -> None:
    paths = make(tmp_path / "www", 1)
    (tmp_path / "seed").mkdir()
    (tmp_path / "seed" / paths[0].name).write_bytes(b"y" * paths[0].stat().st_size)
    with serve(tmp_path / "www") as index:
        wheels = listed(paths, index.url)
        assert fetching.fetch(wheels, tmp_path / "house", [tmp_path / "seed"]).fetched == wheels[0].size


def test_a_file_that_changed_afterwards_is_noticed(tmp_path: Path) -> None:
    paths = make(tmp_path / "www", 1)
    with serve(tmp_path / "www") as index:
        wheels = listed(paths, index.url)
        fetching.fetch(wheels, tmp_path / "house")
        target = tmp_path / "house" / paths[0].name
        target.write_bytes(b"z" * wheels[0].size)
        assert fetching.fetch(wheels, tmp_path / "house").fetched == wheels[0].size
        assert target.read_bytes() == paths[0].read_bytes()


def test_nothing_else_stays_unless_only_a_part_was_asked_for(tmp_path: Path) -> None:
    paths = make(tmp_path / "seed", 2)
    wheels = listed(paths, "")
    fetching.fetch(wheels, tmp_path / "house", [tmp_path / "seed"])
    fetching.fetch(wheels[:1], tmp_path / "house", [tmp_path / "seed"], exactly=False)
    assert (tmp_path / "house" / paths[1].name).exists()
    fetching.fetch(wheels[:1], tmp_path / "house", [tmp_path / "seed"])
    assert not (tmp_path / "house" / paths[1].name).exists()


def test_what_is_built_here_must_have_the_locked_hash(tmp_path: Path) -> None:
    path = make(tmp_path / "seed", 1)[0]
    item = describe(path)
    fetching.fetch([item], tmp_path / "house", built={path.name: path.read_bytes()})
    with pytest.raises(fetching.FetchError, match="does not have the hash"):
        fetching.fetch([item], tmp_path / "other", built={path.name: b"else"})
    with pytest.raises(fetching.FetchError, match="no address"):
        fetching.fetch([item], tmp_path / "third")


def test_a_full_disk_is_an_error_before_the_first_byte(tmp_path: Path) -> None:
    paths = make(tmp_path / "www", 1)
    with serve(tmp_path / "www") as index:
        wheels = [item._replace(size=1 << 50) for item in listed(paths, index.url)]
        with pytest.raises(fetching.FetchError, match=r"GB free; 1125899\.9 GB of wheels are to come"):
            fetching.require_space(wheels, tmp_path / "house", 0)
        fetching.require_space([], tmp_path / "house", 1 << 60)
        assert index.asked == []


def test_one_node_offers_to_its_peers_and_what_arrives_is_judged(tmp_path: Path) -> None:
    paths = make(tmp_path / "head", 3)
    wheels = [house.mirrored(item, "placeholder") for item in listed(paths, "http://127.0.0.1:9")]
    url = offer.start(tmp_path / "head", "127.0.0.1", 0, ["127.0.0.1"], idle_s=60)
    try:
        wheels = [house.mirrored(item, url) for item in wheels]
        part = tmp_path / "house" / f"{wheels[2].sha256}.part"
        part.parent.mkdir()
        part.write_bytes(paths[2].read_bytes()[:1000])
        total = sum(item.size for item in wheels)
        assert fetching.fetch(wheels, tmp_path / "house").fetched == total - 1000
        for name in ("../" + paths[0].name, "x/" + paths[0].name, "missing.whl"):
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(f"{url}/{name}")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{url.rpartition('/')[0]}/guess/{paths[0].name}")
    finally:
        assert offer.stop(url)
    assert not offer.stop(url)


def test_an_offer_refuses_whoever_is_no_peer(tmp_path: Path) -> None:
    path = make(tmp_path / "head", 1)[0]
    server = offer.Server("127.0.0.1", 0, tmp_path / "head", ["192.168.100.2"], "t")
    try:
        assert not server.verify_request(None, ("127.0.0.1", 1))
        assert server.verify_request(None, ("192.168.100.2", 1))
    finally:
        server.server_close()
    assert path.exists()


def test_an_offer_ends_by_itself(tmp_path: Path) -> None:
    url = offer.start(tmp_path, "127.0.0.1", 0, [], idle_s=0)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(f"{url}/x", timeout=5)
        except urllib.error.HTTPError:
            continue
        except OSError:
            return
    pytest.fail("still there after 20 s")


def test_an_address_that_is_not_ours_is_named(tmp_path: Path) -> None:
    with pytest.raises(offer.OfferError, match=r"cannot listen on 203\.0\.113\.1 port any"):
        offer.start(tmp_path, "203.0.113.1", 0, [], 1)
