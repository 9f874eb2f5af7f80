"""Loads one entry point in a process that may exit or hang, and writes its progress to a file."""

from __future__ import annotations

import faulthandler
import os
import sys
from typing import Any, NoReturn

from grpo.plugins._host.entry_points import entry_of
from grpo.plugins._host.loading import load_entry
from grpo.plugins._host.probe import BEGAN, LOADED, TOLD
from grpo.plugins.error_lines import one_line


def main(given: dict[str, Any]) -> NoReturn:
    """Loads the entry and ends the process."""
    really, me = os._exit, os.getpid()
    with open(given["said"], "a", encoding="utf-8", errors="replace", buffering=1) as output:

        def ended(status: int) -> NoReturn:
            frame = sys._getframe(1)
            place = "/".join(frame.f_code.co_filename.split(os.sep)[-2:])
            if os.getpid() == me:  # a child that it forked may end so
                output.write(f"{TOLD} ends the process by os._exit({status!r}) (at {place}:{frame.f_lineno})\n")
            really(status)

        output.write(f"{BEGAN}\n")
        os._exit = ended
        faulthandler.enable(output)
        faulthandler.dump_traceback_later(given["seconds"], exit=True, file=output)
        try:
            load_entry(entry_of(*given["entry"]))
        except KeyboardInterrupt as error:  # nobody pressed Ctrl-C here
            output.write(f"{TOLD} raises what Ctrl-C raises, which ends every command: {one_line(error)}\n")
        except BaseException as error:
            output.write(f"{TOLD} raises {one_line(error)}\n")
        else:
            output.write(f"{LOADED} {os.getpid()}\n")
        output.flush()
        really(0)
