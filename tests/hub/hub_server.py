"""A small Hugging Face Hub on 127.0.0.1: as much as the real client needs to push a repository and load from it."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml


USER = "tester"
TOKEN = "hf_of_the_tester"


class Repository:
    """One model repository: its commits, newest last, and whether it is private."""

    def __init__(self, private: bool) -> None:
        self.private = private
        self.commits: list[tuple[str, str, dict[str, bytes]]] = [(_sha1(b""), "initial commit", {})]

    def commit(self, message: str, changes: dict[str, bytes | None]) -> str:
        files = {**self.commits[-1][2], **{name: data for name, data in changes.items() if data is not None}}
        for name in [name for name, data in changes.items() if data is None]:
            files.pop(name)
        oid = _sha1(repr([self.commits[-1][0], message, sorted(files.items())]).encode())
        self.commits.append((oid, message, files))
        return oid

    def at(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        for oid, _, files in reversed(self.commits):
            if revision in ("main", oid):
                return oid, files
        return None


def _sha1(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


class Hub(ThreadingHTTPServer):
    """The server's state."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.lfs: dict[str, bytes] = {}
        self.not_understood: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Refusal(Exception):
    def __init__(self, status: int, code: str) -> None:
        self.status = status
        self.code = code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, content: Any, status: int = 200) -> None:
        self._answer(status, json.dumps(content).encode(), Content_Type="application/json")

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = self._chunks()
        path = unquote(urlsplit(self.path).path)
        try:
            for method, pattern, action in _ROUTES:
                match = re.fullmatch(pattern, path)
                if match and self.command in method:
                    action(self, body, **match.groupdict())
                    return
            self.server.not_understood.append(f"{self.command} {path}")
            self._answer(404)
        except _Refusal as refusal:
            self._answer(refusal.status, X_Error_Code=refusal.code, X_Error_Message=refusal.code)

    do_GET = do_HEAD = do_POST = do_PUT = _handle

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    # Access

    def _may_write(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise _Refusal(401, "Unauthorized")

    def _repository(self, repo: str) -> Repository:
        repository = self.server.repositories.get(repo)
        if repository is None or (repository.private and self.headers.get("Authorization") != f"Bearer {TOKEN}"):
            raise _Refusal(404, "RepoNotFound")
        return repository

    def _revision(self, repo: str, revision: str | None) -> tuple[str, dict[str, bytes]]:
        found = self._repository(repo).at(revision or "main")
        if found is None:
            raise _Refusal(404, "RevisionNotFound")
        return found

    # Writing

    def create(self, body: bytes) -> None:
        self._may_write()
        asked = json.loads(body)
        repo = f"{asked['organization'] or USER}/{asked['name']}"
        answer = {"url": f"{self.server.url}/{repo}", "name": repo}
        if repo in self.server.repositories:
            self._json({"error": "You already created this model repo", **answer}, status=409)
            return
        private = bool(asked.get("private")) or asked.get("visibility") == "private"
        self.server.repositories[repo] = Repository(private)
        self._json(answer)

    def validate_yaml(self, body: bytes) -> None:
        content = json.loads(body)["content"]
        errors = [] if isinstance(_metadata(content.encode()), dict) else [{"message": "no metadata"}]
        self._json({"errors": errors, "warnings": []}, status=400 if errors else 200)

    def preupload(self, body: bytes, repo: str, revision: str) -> None:
        self._may_write()
        self._revision(repo, revision)
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                "shouldIgnore": False,
            }
            for file in json.loads(body)["files"]
        ]
        self._json({"files": files})

    def lfs_batch(self, body: bytes, repo: str) -> None:
        self._may_write()
        asked = json.loads(body)
        objects = [
            {**item, "actions": {"upload": {"href": f"{self.server.url}/lfs/{item['oid']}"}}}
            for item in asked["objects"]
        ]
        self._json({"transfer": "basic", "objects": objects})

    def lfs_put(self, body: bytes, oid: str) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            raise _Refusal(400, "BadDigest")
        self.server.lfs[oid] = body
        self._answer(200)

    def commit(self, body: bytes, repo: str, revision: str) -> None:
        self._may_write()
        changes: dict[str, bytes | None] = {}
        message = ""
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                message = value["summary"]
            elif entry["key"] == "file":
                changes[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                changes[value["path"]] = self.server.lfs[value["oid"]]
            elif entry["key"] == "deletedFile":
                changes[value["path"]] = None
            else:
                raise _Refusal(400, "UnknownOperation")
        oid = self._repository(repo).commit(message, changes)
        self._json({"success": True, "commitOid": oid, "commitUrl": f"{self.server.url}/{repo}/commit/{oid}"})

    # Reading

    def info(self, body: bytes, repo: str, revision: str | None = None) -> None:
        oid, files = self._revision(repo, revision)
        metadata = _metadata(files.get("README.md", b"")) or {}
        self._json(
            {
                "_id": "0" * 24,
                "id": repo,
                "sha": oid,
                "private": self._repository(repo).private,
                "tags": metadata.get("tags", []),
                "pipeline_tag": metadata.get("pipeline_tag"),
                "library_name": metadata.get("library_name"),
                "siblings": [{"rfilename": name} for name in sorted(files)],
            }
        )

    def tree(self, body: bytes, repo: str, revision: str, folder: str | None = None) -> None:
        _, files = self._revision(repo, revision)
        prefix = f"{folder}/" if folder else ""
        entries = [
            {"type": "file", "path": name, "size": len(data), "oid": _sha1(data)}
            for name, data in sorted(files.items())
            if name.startswith(prefix)
        ]
        if folder and not entries:
            raise _Refusal(404, "EntryNotFound")
        self._json(entries)

    def resolve(self, body: bytes, repo: str, revision: str, file: str) -> None:
        oid, files = self._revision(repo, revision)
        if file not in files:
            self._answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=oid)
            return
        data = files[file]
        self._answer(200, data, X_Repo_Commit=oid, ETag=f'"{_sha1(data)}"')


def _metadata(card: bytes) -> Any:
    parts = card.decode().split("---\n", 2)
    return yaml.safe_load(parts[1]) if len(parts) == 3 and not parts[0] else None


_REPO = r"(?P<repo>[^/]+/[^/]+)"
_REVISION = r"(?P<revision>[^/]+)"
_ROUTES: list[tuple[tuple[str, ...], str, Any]] = [
    (("POST",), "/api/repos/create", _Handler.create),
    (("POST",), "/api/validate-yaml", _Handler.validate_yaml),
    (("POST",), f"/api/models/{_REPO}/preupload/{_REVISION}", _Handler.preupload),
    (("POST",), rf"/{_REPO}\.git/info/lfs/objects/batch", _Handler.lfs_batch),
    (("PUT",), r"/lfs/(?P<oid>\w+)", _Handler.lfs_put),
    (("POST",), f"/api/models/{_REPO}/commit/{_REVISION}", _Handler.commit),
    (("GET",), f"/api/models/{_REPO}", _Handler.info),
    (("GET",), f"/api/models/{_REPO}/revision/{_REVISION}", _Handler.info),
    (("GET",), f"/api/models/{_REPO}/tree/{_REVISION}(?:/(?P<folder>.+))?", _Handler.tree),
    (("GET", "HEAD"), f"/{_REPO}/resolve/{_REVISION}/(?P<file>.+)", _Handler.resolve),
]


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Run the server in a thread."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
