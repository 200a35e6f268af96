"""Attacks on the server: each must be refused before a page sees it."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.view.pages import BASE, PORT, Visitor, write_run
from tilth.view.guard import FORM_BYTES, Guard, Keys


@pytest.fixture
def visitor(tmp_path: Path) -> Iterator[Visitor]:
    write_run(tmp_path / "pairs")
    visitor = Visitor(tmp_path)
    yield visitor
    visitor.close()


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", "",
     f"localhost.evil.example:{PORT}", f"127.0.0.1.evil.example:{PORT}", f"192.168.0.7:{PORT}",
     f"user@127.0.0.1:{PORT}", f"127.0.0.1:{PORT}/x", f"127.0.0.1:{PORT}x"],
)  # fmt: skip
def test_other_hosts_are_refused(visitor: Visitor, host: str) -> None:
    """A page of evil.example whose name leads to 127.0.0.1 (DNS rebinding)."""
    assert visitor.client.get("/", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", [f"localhost:{PORT}", f"[::1]:{PORT}", f"127.0.0.1:{PORT}"])
def test_names_of_this_machine_pass(visitor: Visitor, host: str) -> None:
    assert visitor.client.get("/", headers={"Host": host}).status_code == 200


def test_who_listens_on_all_addresses_is_asked_by_address() -> None:
    guard = Guard(None, Keys(), "0.0.0.0", PORT)  # type: ignore[arg-type]
    assert guard._is_own(f"192.168.0.7:{PORT}")
    assert not guard._is_own(f"evil.example:{PORT}")


@pytest.mark.parametrize("cookie", ["", "wrong", "x" * 5000])
def test_without_the_token_nothing_is_shown(visitor: Visitor, cookie: str) -> None:
    visitor.client.cookies.clear()
    given = {"Cookie": f"tilth-view-{PORT}={cookie}"}
    for address in ("/", "/rows?run=pairs", "/view.js", "/report?run=pairs", "/nowhere"):
        answer = visitor.client.get(address, headers=given)
        assert (answer.status_code, "pairs" in answer.text) == (403, False)
    assert visitor.client.get("/?token=wrong").status_code == 403
    assert visitor.client.get("/?token=").status_code == 403


@pytest.mark.parametrize(
    "other", ['theme={"dark": true, "list": [1]}', "flag", "a[b]=1", "n=1=2", "x=y; tilth-view-1=z"]
)
def test_cookies_of_other_servers_do_no_harm(visitor: Visitor, other: str) -> None:
    """Those of all servers of one host come with each request, some in no known syntax."""
    own = f"tilth-view-{PORT}={visitor.keys.cookie}"
    visitor.client.cookies.clear()
    for both in (f"{other}; {own}", f"{own}; {other}"):
        assert visitor.client.get("/", headers={"Cookie": both}).status_code == 200
    assert visitor.client.get("/", headers={"Cookie": other}).status_code == 403


def test_the_token_leaves_the_address(visitor: Visitor) -> None:
    answer = visitor.client.get(f"/rows?run=pairs&token={visitor.keys.token}&q=a+b")
    assert answer.headers["location"] == "/rows?run=pairs&q=a+b"
    cookie = answer.headers["set-cookie"]
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert visitor.keys.token not in cookie
    answer = visitor.client.get(f"{BASE}//evil.example/?token={visitor.keys.token}")
    assert answer.headers["location"] == "/evil.example/"
    for place in ("%09/evil.example/", "%0d%0aX-A:b"):
        answer = visitor.client.get(f"/{place}?token={visitor.keys.token}&q=a")
        assert answer.headers["location"] == "/?q=a"


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"},
     {"Origin": f"http://127.0.0.1:{PORT + 1}"}, {"Origin": f"https://127.0.0.1:{PORT}"},
     {"Origin": f"http://localhost:{PORT}"},
     {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
     {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}],
)  # fmt: skip
def test_requests_of_other_pages_are_refused(visitor: Visitor, headers: dict[str, str]) -> None:
    assert visitor.client.get("/", headers=headers).status_code == 403


def test_writes_need_origin_and_csrf_value(visitor: Visitor) -> None:
    csrf, client = visitor.keys.csrf, visitor.client
    right = {"Origin": BASE}
    for address in ("/", "/rows", "/sample", "/answer", "/import", "/nowhere"):
        assert client.post(address, data={"csrf": csrf}).status_code == 403  # no Origin
        assert client.post(address, headers=right).status_code == 403
        assert client.post(address, data={"csrf": "x"}, headers=right).status_code == 403
        wrong = {"Origin": "http://evil.example"}
        assert client.post(address, data={"csrf": csrf}, headers=wrong).status_code == 403
    client.cookies.clear()
    assert client.post("/", data={"csrf": csrf}, headers=right).status_code == 403


def test_large_requests_are_refused(visitor: Visitor) -> None:
    right = {"Origin": BASE}
    large = {"csrf": visitor.keys.csrf, "note": "x" * FORM_BYTES}
    assert visitor.client.post("/nowhere", data=large, headers=right).status_code == 413
    lying = visitor.client.post("/nowhere", content=b"x", headers={**right, "Content-Length": "-1"})
    assert lying.status_code == 413
    assert visitor.client.get("/rows?run=" + "x" * 9000).status_code == 414
    assert visitor.client.put("/").status_code == 405
    assert visitor.client.request("OPTIONS", "/").status_code == 405


def test_a_body_in_pieces_is_bounded(visitor: Visitor) -> None:
    """No Content-Length, pieces without end: reading ends at the limit."""
    sent: list[Any] = []
    taken = 0
    cookie = f"tilth-view-{PORT}={visitor.keys.cookie}"

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": b"x" * 65_536, "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", f"127.0.0.1:{PORT}".encode()), (b"origin", BASE.encode()),
               (b"cookie", cookie.encode())]  # fmt: skip
    scope = {"type": "http", "method": "POST", "path": "/x", "query_string": b"",
             "headers": headers}  # fmt: skip
    asyncio.run(visitor.guard(scope, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 413
    assert taken == FORM_BYTES // 65_536 + 1


def test_every_answer_has_the_headers(visitor: Visitor) -> None:
    for address in ("/", "/nowhere", "/view.js", "/?token=x"):
        headers = visitor.client.get(address).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"


def test_what_an_address_names_by_its_content_may_be_kept(visitor: Visitor) -> None:
    address = re.search(r'src="(/view.js[?]v=[0-9a-f]{16})"', visitor.client.get("/").text)
    assert address is not None
    headers = visitor.client.get(address[1]).headers
    assert headers["cache-control"] == "private, max-age=86400, immutable"
    visitor.client.cookies.clear()
    assert visitor.client.get(address[1]).status_code == 403


def test_two_servers_have_two_cookies(tmp_path: Path) -> None:
    one, two = Visitor(tmp_path), Visitor(tmp_path)
    assert one.keys.cookie != two.keys.cookie
    two.client.cookies = one.client.cookies
    assert two.client.get("/").status_code == 403
