"""An MCP server over stdio that behaves as it is told, honest or not, written without the package mcp.

Its arguments say how it begins: `refuses` ends with an error, `silent` answers nothing, `garbage` prints other things
first, `pages` lists its tools one by one, `none` has no tools, `newest` knows no handshake.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = (
    *("echo", "count", "crash", "hang", "slow", "big", "big_log", "garbage", "image", "nothing", "data", "fails"),
    *("noisy", "asks", "daemon", "changes", "where", "refused", "broken", "variables", "needs_user"),
)
asked: set[str] = set()
state = {"count": 0, "changed": 0}


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def read() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    message: dict[str, Any] = json.loads(line)
    return message


def tool(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"text": {"type": "string", "description": "any text"}}}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], **more}


def request_of_client(number: int, method: str, params: dict[str, Any]) -> str:
    write({"id": 1000 + number, "method": method, "params": params})
    while True:
        message = read()
        if message.get("id") == 1000 + number:
            return f"{method}: {message.get('error', {}).get('message', 'answered')}"


def call(name: str, arguments: dict[str, Any], identifier: Any) -> dict[str, Any] | None:
    match name:
        case "echo":
            return text(arguments.get("text", ""))
        case "count":
            state["count"] += 1
            return text(str(state["count"]))
        case "crash":
            sys.stderr.write("no such luck\n")
            os._exit(3)
        case "hang":
            time.sleep(3600)
        case "slow":
            return None
        case "big":
            return text("x" * 50_000_000)
        case "big_log":
            write({"method": "notifications/message", "params": {"level": "info", "data": "y" * 50_000_000}})
            return text("after the log")
        case "garbage":
            sys.stdout.write("hello\n{\n[1, 2\n" + "\x00\xff" * 10 + '\n{"jsonrpc": "2.0", "id": 99, "result": {}}\n')
            return text("after the garbage")
        case "image":
            picture = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}
            file = {"type": "resource", "resource": {"uri": "file:///a", "blob": "aGVsbG8=", "mimeType": "a/b"}}
            note = {"type": "resource", "resource": {"uri": "file:///b", "text": "a note"}}
            link = {"type": "resource_link", "uri": "file:///c", "name": "c"}
            return {"content": [picture, {"type": "text", "text": "a caption"}, file, note, link]}
        case "nothing":
            return {"content": []}
        case "data":
            return {"content": [], "structuredContent": {"answer": 42}}
        case "fails":
            return text("the disk is full", isError=True)
        case "noisy":
            for number in range(200):
                progress = {"progressToken": 1, "progress": number}
                write({"method": "notifications/progress", "params": progress})
                write({"method": "notifications/message", "params": {"level": "error", "data": "!"}})
            return text("done")
        case "asks":
            sampling = {"messages": [], "maxTokens": 5}
            form = {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}
            answers = [
                request_of_client(0, "sampling/createMessage", sampling),
                request_of_client(1, "elicitation/create", form),
                request_of_client(2, "roots/list", {}),
            ]
            return text("; ".join(answers))
        case "daemon":
            line = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(3600)"]
            process = subprocess.Popen(line, start_new_session=True, stdin=subprocess.DEVNULL)
            return text(str(process.pid))
        case "changes":
            state["changed"] = 1
            write({"method": "notifications/tools/list_changed"})
            return text("changed")
        case "where":
            return text(json.dumps([str(Path.cwd()), *sorted(str(path) for path in Path().iterdir())]))
        case "variables":
            return text(json.dumps(dict(os.environ)))
        case "broken":
            return {"content": "no list"}
        case "needs_user":
            return {"resultType": "input_required", "requestState": "1"}
    write({"id": identifier, "error": {"code": -32602, "message": f"no tool {name}"}})
    return None


def listing(cursor: str | None) -> dict[str, Any]:
    if "none" in asked:
        return {"tools": []}
    names = NAMES[:2] if state["changed"] else NAMES
    if "pages" not in asked:
        return {"tools": [tool(name) for name in names]}
    at = int(cursor or 0)
    return {"tools": [tool(names[at])], **({"nextCursor": str(at + 1)} if at + 1 < len(names) else {})}


def serve() -> None:
    while True:
        message = read()
        method, params, identifier = message.get("method"), message.get("params") or {}, message.get("id")
        info = {"name": "test", "version": "1"}
        result: dict[str, Any] | None = None
        if method == "initialize" and "newest" not in asked:
            result = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}, "logging": {}},
                "serverInfo": info,
            }
        elif method == "server/discover" and "newest" in asked:
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
            result |= {"ttlMs": 0, "cacheScope": "public"}
        elif method == "ping":
            result = {}
        elif method == "tools/list":
            result = listing(params.get("cursor"))
            if "newest" in asked:
                result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
        elif method == "tools/call":
            result = call(params["name"], params.get("arguments") or {}, identifier)
            if "newest" in asked and result is not None:
                result = {"resultType": "complete", **result}
        elif identifier is not None and method is not None:
            write({"id": identifier, "error": {"code": -32601, "message": f"no method {method}"}})
        if result is not None:
            write({"id": identifier, "result": result})


if __name__ == "__main__":
    asked |= {*sys.argv[1:]}
    if "refuses" in asked:
        sys.exit("there is no licence")
    if "silent" in asked:
        time.sleep(3600)
    if "garbage" in asked:
        print("Welcome to my server!\n\n{{{")
    serve()
