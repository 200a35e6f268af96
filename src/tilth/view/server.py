"""Serve the pages: routes, errors, the address; the home of Starlette and uvicorn."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tilth.errors import InputError, TilthError
from tilth.view.guard import Guard, Keys
from tilth.view.settings import ViewSettings

if TYPE_CHECKING:
    from tilth.view.site import Asked, HttpReply, Site

    Page = Callable[[Site, Asked], HttpReply]

log = logging.getLogger(__name__)

_THREADS = 4  # pages that are made at once; more would hold more memory and be no faster
_FIRST_PORT, _PORTS_TRIED = 8420, 40
_MISSING = "tilth view needs Starlette and uvicorn: pip install 'tilth[view]'"


def serve(
    root: Path, settings: ViewSettings, *, on_start: Callable[[str], None] = lambda _: None
) -> None:
    """Serve the pages of a run, of all runs below a folder, or of a file of rows, until Ctrl-C.

    Args:
        on_start: is given the URL, with its token, before the first request is answered.

    Raises:
        InputError: the extra `view` is not installed, or the file is wrong.
        TilthError: the port is taken, or the address is not this machine's.
    """
    try:
        import uvicorn

        from tilth.view.site import Site
    except ImportError as error:
        raise InputError(_MISSING) from error

    keys = Keys()
    with _listen(settings) as listener:
        port = listener.getsockname()[1]
        site = Site(root, settings.annotations, csrf=keys.csrf, models=settings.models)
        app = make_app(site, keys, host=settings.host, port=port)
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        if settings.host in ("0.0.0.0", "::"):
            shown = socket.gethostname().lower()
        config = uvicorn.Config(
            app,
            http="h11",  # the others leave the length of headers unbounded
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            limit_concurrency=256,
            timeout_graceful_shutdown=2,
            ws="none",
        )
        try:
            on_start(f"http://{shown}:{port}/?token={keys.token}")
            uvicorn.Server(config).run(sockets=[listener])
        except KeyboardInterrupt:
            return
        finally:
            site.close()


def make_app(site: Site, keys: Keys, *, host: str = "127.0.0.1", port: int) -> Guard:
    """Return the guarded ASGI application of a site."""
    try:
        from anyio import CapacityLimiter, to_thread
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import Response
        from starlette.routing import Route
    except ImportError as error:
        raise InputError(_MISSING) from error

    from tilth.view.guard import UPLOADS, form_of
    from tilth.view.site import Asked

    limiter = CapacityLimiter(_THREADS)

    def answer(page: Page, asked: Asked) -> Response:
        reply, headers = _reply(page, site, asked), {}
        if reply.location is not None:
            headers["location"] = reply.location
        if reply.filename is not None:
            headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(reply.filename)}"
        if reply.policy is not None:
            headers["content-security-policy"] = reply.policy
        if reply.is_fixed:
            headers["cache-control"] = "private, max-age=86400, immutable"
        return Response(reply.content, reply.status, headers, reply.kind)

    def endpoint(page: Page, *, writes: bool) -> Callable[[Request], Any]:
        async def handle(request: Request) -> Response:
            body = await request.body() if writes else b""
            is_file = request.url.path in UPLOADS
            asked = Asked(
                query=dict(request.query_params),
                form={} if is_file else form_of(body),
                body=body if is_file else b"",
            )
            return await to_thread.run_sync(answer, page, asked, limiter=limiter)

        return handle

    reads, writes = _pages(site)
    routes = [Route(path, endpoint(page, writes=False), methods=["GET"])
              for path, page in reads.items()]  # fmt: skip
    routes += [Route(path, endpoint(page, writes=True), methods=["POST"])
               for path, page in writes.items()]  # fmt: skip
    routes.append(Route("/{path:path}", endpoint(_missing, writes=False)))
    return Guard(Starlette(routes=routes), keys, host, port)


def _reply(page: Page, site: Site, asked: Asked) -> HttpReply:
    """Return a page, or the page of its error."""
    from tilth.view.site import NotFoundError

    try:
        return page(site, asked)
    except TilthError as error:
        status = 404 if isinstance(error, NotFoundError) else 400
        status, text = status if isinstance(error, InputError) else 500, str(error)
    except Exception as error:
        log.exception("%s failed", getattr(page, "__name__", page))
        status, text = 500, f"{type(error).__name__}: see the terminal for it"
    return replace(site.page("error", text=text, status=status), status=status)


def _missing(*_: object) -> HttpReply:
    from tilth.view.site import NotFoundError

    raise NotFoundError("there is no such page")


def _pages(site: Site) -> tuple[Mapping[str, Page], Mapping[str, Page]]:
    """Return path -> page of what is read, and of what is written."""
    from tilth.view import annotate, browse, take, try_pages
    from tilth.view.workbench import KINDS

    reads: Mapping[str, Page] = {
        "/": browse.run_list,
        "/live/runs": browse.live_runs,
        "/live/rows": browse.live_rows,
        "/rows": browse.row_list,
        "/row": browse.one_row,
        "/report": browse.report,
        "/samples": annotate.sample_list,
        "/annotate": annotate.annotate,
        "/results": annotate.results,
        "/file": take.take_file,
        "/live/results": annotate.live_results,
        "/try": try_pages.first_page,
        "/live/try": try_pages.live_job,
        **{f"/try/{kind}": try_pages.try_page(kind) for kind in KINDS},
        **{path: browse.static_file(path) for path in site.files},
    }
    writes: Mapping[str, Page] = {
        "/sample": annotate.add_sample,
        "/answer": annotate.answer,
        "/undo": annotate.undo,
        "/set": take.take_set,
        "/import": take.bring,
        "/try/check": try_pages.check_task,
        **{f"/try/{kind}": try_pages.try_now(kind) for kind in KINDS},
    }
    return reads, writes


def _listen(settings: ViewSettings) -> socket.socket:
    """Return a listening socket on the port, or on the first free one."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    ports = [settings.port] if settings.port else range(_FIRST_PORT, _FIRST_PORT + _PORTS_TRIED)
    failed: OSError | None = None
    for port in ports:
        # Without the protocol's number, asyncio leaves Nagle's algorithm on: 40 ms an answer.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, port))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            failed = error
    reason = failed.strerror if failed else ""
    raise TilthError(
        f"{settings.host}, port {ports[0]}: cannot be listened on ({reason}): choose another --port"
    )
