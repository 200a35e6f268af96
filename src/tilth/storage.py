"""Keep local copies of what lies in an object store, and put there what is written.

Any store that fsspec knows is read and written: `s3://`, `gs://`, `abfs://`, `memory://`, ... A put
of an object is atomic, a rename is not: files are put whole, under their final names, those that
say that others are there last. For a path that is no copy (`tilth.urls`), nothing is done.
"""

from __future__ import annotations

import errno
import glob
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from tilth.errors import InputError, TilthError, one_line
from tilth.urls import cache_folder, copies_folder, split_url, url_of

log = logging.getLogger(__name__)

T = TypeVar("T")
Versions: TypeAlias = dict[Path, str]
"""Path of the copy -> what tells an object's content from earlier ones."""

_MARKS = "versions"
_TOGETHER = 32  # objects that are copied at once
# Written when the files beside them are there.
_LAST = ("README.md", "shard.json", "results.json", "index.json", "bank.json", "run.json")
_SECONDS_RETRYING, _SECONDS_BETWEEN = 120.0, 8.0
_NO_BUCKET = re.compile(r"(bucket|container)\b.*(not exist|not found)|NoSuchBucket", re.IGNORECASE)
_EXTRAS = {"s3fs": "'tilth[storage]'"}
_ENDPOINTS = {"s3": "endpoint, such as AWS_ENDPOINT_URL, and the "}
_REFUSED = re.compile(r"(Forbidden|Unauthorized|Anonymous caller)\b")  # texts of gcsfs
# Waiting does not mend these.
_LASTING = (
    FileNotFoundError, PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError,
    NotImplementedError, ImportError, ValueError, TypeError, LookupError, AttributeError,
)  # fmt: skip
_LASTING_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def as_path(place: str | Path) -> Path:
    """Return the path of a place: for a URL, of its local copy; `file://` is a path itself."""
    if not isinstance(place, str | Path):
        raise InputError(f"a name is of type {type(place).__name__}: give a text or a path")
    parts = split_url(place)
    if parts is None:
        return Path(os.path.expanduser(place))
    scheme, rest = parts
    if scheme == "file":
        return Path("/" + rest.lstrip("/"))
    names = [name for name in rest.split("/") if name]
    if not names or names != rest.rstrip("/").split("/") or any(n[0] == "." for n in names):
        raise InputError(
            f"{place}: no part of a URL may be empty or begin with a dot: give another"
        )
    return copies_folder().joinpath(scheme, *names)


def store_of(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, and the path in it."""
    from fsspec.core import url_to_fs

    scheme = url.partition("://")[0]
    try:
        store, path = url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        package = re.search(r"\b(s3fs|gcsfs|adlfs|ocifs|ossfs|aiohttp)\b", str(error))
        name = package[1] if package else f"of fsspec for {scheme}://"
        raise InputError(
            f"{url}: needs the package {name}: pip install {_EXTRAS.get(name, name)}"
        ) from error
    except ValueError as error:
        raise InputError(f"{url}: no store is known by {scheme}://: {error}") from error
    return store, str(path)


@contextmanager
def store_errors(url: str) -> Iterator[None]:
    """Turn errors of a store into one line that names the URL and the remedy."""
    try:
        yield
    except TilthError:
        raise
    except Exception as error:  # each store raises its library's own
        if isinstance(error, OSError) and error.errno in _LASTING_NUMBERS:
            raise
        said = one_line(error)[:300] or type(error).__name__
        if _is_no_bucket(error):
            raise InputError(f"{url}: {said}: make the bucket, or check its name") from error
        if isinstance(error, NotImplementedError):
            raise InputError(f"{url}: this store is only read: choose another --out") from error
        if isinstance(error, FileNotFoundError):
            raise InputError(f"{url}: no such object: check the URL") from error
        if _is_refused(error):
            raise InputError(
                f"{url}: the store refuses ({said.rstrip('.')}): check the credentials, such as "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they allow"
            ) from error
        raise TilthError(
            f"{url}: the store does not answer as it should ({said.rstrip('.')}): check the "
            f"{_ENDPOINTS.get(url.partition(':')[0], '')}network, and run the same command again"
        ) from error


def _is_refused(error: Exception) -> bool:
    return (
        isinstance(error, PermissionError)
        or "Credential" in type(error).__name__
        or _REFUSED.match(str(error)) is not None
        or getattr(error, "code", None) in (401, 403)
    )


def _is_no_bucket(error: Exception) -> bool:
    return isinstance(error, FileNotFoundError) and bool(_NO_BUCKET.search(str(error)))


def with_retries(url: str, work: Callable[[], T]) -> T:
    """Do work on a store; retry for two minutes while it does not answer."""
    begun, pause = time.monotonic(), 0.5
    while True:
        try:
            return work()
        except Exception as error:  # noqa: PERF203 - a few times
            lasts = isinstance(error, _LASTING) or _is_refused(error)
            lasts = lasts or getattr(error, "errno", None) in _LASTING_NUMBERS
            if lasts or time.monotonic() - begun > _SECONDS_RETRYING:
                raise
            said = one_line(error)[:200]
            log.warning("%s: the store does not answer (%s): trying again", url, said)
            time.sleep(pause)
            pause = min(2 * pause, _SECONDS_BETWEEN)


def names(folder: Path) -> list[str]:
    """Return the names in a folder, or under its URL; none where there is no such folder."""
    url = url_of(folder)
    if url is None:
        return sorted(item.name for item in folder.iterdir()) if folder.exists() else []
    store, place = store_of(url)
    with store_errors(url):
        try:
            found = [str(name).rstrip("/") for name in store.ls(place, detail=False)]
        except FileNotFoundError as error:
            if _is_no_bucket(error):
                raise
            return []
    if found == [place.rstrip("/")] and store.info(place)["type"] == "file":
        raise InputError(f"{url} is a file: choose another --out")
    return sorted(name.rpartition("/")[2] for name in found)


def _versions(folder: Path, *, retry: bool = False) -> Versions:
    """Return the objects under the URL of a folder, or the one object that it names."""
    url = str(url_of(folder))
    store, place = store_of(url)
    root = place.rstrip("/") + "/"

    def look() -> Versions:
        try:
            info = store.info(place)
            if info["type"] == "file":
                return {folder: _version(info)}
            found = store.find(place, detail=True)
        except FileNotFoundError as error:
            if _is_no_bucket(error):
                raise
            return {}
        return {
            folder / name.removeprefix(root): _version(info)
            for name, info in found.items()
            if info["type"] == "file" and _is_kept(name.removeprefix(root))
        }

    with store_errors(url):
        return with_retries(url, look) if retry else look()


def _version(info: Mapping[str, Any]) -> str:
    tags = ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "mtime", "created")
    tag = next((info[tag] for tag in tags if info.get(tag)), "")
    # Listings leave out the quotes of a tag, and give a time as a number.
    text = str(tag.timestamp()) if isinstance(tag, datetime) else str(tag).strip('"')
    return f"{info.get('size')} {text}"


def _is_kept(name: str) -> bool:
    """Return whether a file is copied: hidden ones are not, nor those that lead elsewhere."""
    return not any(part[:1] in ("", ".") for part in name.split("/"))


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder of copies that belong under its URL."""
    if folder.is_file():
        return [folder]
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and _is_kept(path.relative_to(folder).as_posix())
    ]


def _mark_of(path: Path) -> Path:
    return cache_folder() / _MARKS / path.relative_to(copies_folder()).with_name(f"{path.name}.v")


def _set_mark(path: Path, version: str, status: os.stat_result) -> None:
    """Note which object a copy is, and how the file looked then."""
    mark = _mark_of(path)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(f"{version}\n{status.st_size} {status.st_mtime_ns}", encoding="utf-8")


def _known(path: Path) -> str | None:
    """Return the version of the object that a copy is; None: it is none, or was changed here."""
    try:
        version, _, looked = _mark_of(path).read_text(encoding="utf-8").rpartition("\n")
        status = path.stat()
    except OSError:
        return None
    return version if looked == f"{status.st_size} {status.st_mtime_ns}" else None


def exists(file: Path) -> bool:
    """Return whether a file is there, or an object under its URL."""
    return file.exists() if url_of(file) is None else bool(_versions(file))


def pull(
    folder: Path, *, only: Callable[[Path], bool] = lambda _: True, clean: bool = False
) -> None:
    """Copy the objects under a folder's URL, or the object that it names; current copies stay.

    Args:
        only: selects the paths.
        clean: remove copies of objects that were deleted; unless the run under the URL is the one
            of the copies, also files that were never put there.
    """
    if url_of(folder) is None:
        return
    found = {path: version for path, version in _versions(folder).items() if only(path)}
    if clean:
        run = folder / "run.json"
        goes_on = run in found and _known(run) == found[run]
        for path in _files(folder):
            if only(path) and path not in found and not (goes_on and _known(path) is None):
                path.unlink()
                _mark_of(path).unlink(missing_ok=True)
    _fetch({path: version for path, version in found.items() if _known(path) != version})


def fetch(path: Path) -> None:
    """Copy an object of which no current copy is here; of one that is gone no copy stays."""
    url = url_of(path)
    if url is None:
        return
    store, place = store_of(url)
    with store_errors(url):
        try:
            version = _version(with_retries(url, partial(store.info, place)))
        except FileNotFoundError:
            if _known(path) is not None:
                path.unlink(missing_ok=True)
                _mark_of(path).unlink(missing_ok=True)
            return
    if _known(path) != version:
        _fetch({path: version})


def _fetch(wanted: Versions) -> None:
    paths = list(wanted)
    for start in range(0, len(paths), _TOGETHER):
        some = paths[start : start + _TOGETHER]
        urls = [str(url_of(path)) for path in some]
        stores = [store_of(url) for url in urls]
        parts = [path.with_name(f".tmp-{secrets.token_hex(4)}-{path.name}") for path in some]
        for path in some:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with store_errors(urls[0]):
                places, files = [place for _, place in stores], [str(part) for part in parts]
                with_retries(urls[0], partial(stores[0][0].get, places, files))
            for part, path in zip(parts, some, strict=True):
                _set_mark(path, wanted[path], part.stat())
                os.replace(part, path)
        finally:
            for part in parts:
                part.unlink(missing_ok=True)


def publish(path: Path, written: Path | None = None) -> None:
    """Put a file to the URL of its path.

    Args:
        written: where its content lies; None: there.
    """
    url, written = url_of(path), written or path
    if url is not None and _is_kept(path.relative_to(copies_folder()).as_posix()):
        _put({path: written})


def push(folder: Path, *, clean: bool = True) -> None:
    """Put what was changed in a folder to its URL.

    Args:
        clean: remove objects whose copies were removed here; those of others stay.
    """
    if url_of(folder) is None:
        return
    found = _versions(folder, retry=True)
    files = _files(folder)
    changed = [path for path in files if path not in found or _known(path) != found[path]]
    for is_last in (False, True):
        some = [path for path in changed if (path.name in _LAST) == is_last]
        for start in range(0, len(some), _TOGETHER):
            _put({path: path for path in some[start : start + _TOGETHER]})
    if clean:
        _delete([path for path in set(found).difference(files) if _mark_of(path).exists()])


def _put(files: Mapping[Path, Path]) -> None:
    urls = [str(url_of(path)) for path in files]
    stores = [store_of(url) for url in urls]
    store, places = stores[0][0], [place for _, place in stores]
    with store_errors(urls[0]):
        with_retries(urls[0], partial(store.put, [str(file) for file in files.values()], places))
        for (path, file), place in zip(files.items(), places, strict=True):
            _set_mark(
                path, _version(with_retries(urls[0], partial(store.info, place))), file.stat()
            )


def remove(path: Path) -> None:
    """Remove a file or a folder, and what lies under its URL, run.json last."""
    if url_of(path) is not None:
        gone = list(_versions(path, retry=True))
        _delete(gone)
        folders = {
            folder for one in gone for folder in one.parents if path in (folder, *folder.parents)
        }
        for folder in sorted(folders, key=lambda one: len(one.parts), reverse=True):
            store, place = store_of(str(url_of(folder)))
            with suppress(Exception):  # few stores keep a folder without objects
                store.rmdir(place)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _delete(paths: Sequence[Path]) -> None:
    """Delete objects by the paths of their copies, run.json last."""
    for is_last in (False, True):
        urls = [str(url_of(path)) for path in paths if (path.name == "run.json") == is_last]
        if urls:
            store = store_of(urls[0])[0]
            places = [glob.escape(store_of(url)[1]) for url in urls]  # `rm` takes patterns
            with store_errors(urls[0]):
                try:
                    with_retries(urls[0], partial(store.rm, places))
                except FileNotFoundError:  # some stores stop at the first that is gone
                    for place in places:
                        with suppress(FileNotFoundError):
                            with_retries(urls[0], partial(store.rm, place))
    for path in paths:
        _mark_of(path).unlink(missing_ok=True)
