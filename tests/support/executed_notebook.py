"""Executes a notebook in a kernel of Jupyter: `executed_notebook.py NOTEBOOK FOLDER RESULT [--stop CELL ROWS]`.

A process of its own, for Jupyter's client leaves sockets and event loops behind. With `--stop`, the kernel is
interrupted, as by the stop button, while the cell that begins with that text runs, once so many rows of metrics are
there. The notebook with its outputs is written to RESULT, also where a cell fails.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

SECONDS = 240


def main(notebook: Path, folder: Path, result: Path, stopped: str = "", rows: int = 0) -> None:
    """Executes the cells one after the other."""
    found = nbformat.read(notebook, as_version=4)
    client = NotebookClient(
        found, timeout=SECONDS, startup_timeout=SECONDS, resources={"metadata": {"path": str(folder)}}
    )

    async def interrupted() -> None:
        assert isinstance(client.km, AsyncKernelManager)
        await client.km.interrupt_kernel()

    def press_stop() -> None:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if sum(len(file.read_text().splitlines()) for file in folder.glob("runs/*/metrics.jsonl")) >= rows:
                asyncio.run(interrupted())
                return
            time.sleep(0.02)

    try:
        with client.setup_kernel():
            for at, cell in enumerate(found.cells):
                if stopped and cell.source.startswith(stopped):
                    threading.Thread(target=press_stop).start()
                client.execute_cell(cell, at)
    finally:
        nbformat.write(found, result)


if __name__ == "__main__":
    _, notebook, folder, result, *stop = sys.argv
    main(Path(notebook), Path(folder), Path(result), *((stop[1], int(stop[2])) if stop else ()))
