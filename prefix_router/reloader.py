"""Reading the configuration again while the router runs: on SIGHUP, and on `POST /reload`.

The file and the flags of the command line are read like at the start, all mistakes at once, in a thread; only
a configuration without mistakes is handed on to be applied. Reloads run one after the other, so that what was
read last is what is in force last. Whatever happens, the caller gets an answer and the router goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from msgspec import to_builtins

from prefix_router.admin.control import Reply
from prefix_router.observe.metrics import Metrics
from prefix_router.settings.model import Settings
from prefix_router.settings.problems import Problem, SettingsError
from prefix_router.settings.reload import ReloadReport
from prefix_router.tls import TlsFileError
from prefix_router.tokenization import TokenizerError

logger = logging.getLogger(__name__)


class ReloadRefusedError(Exception):
    """The configuration cannot be changed now, whatever it says."""


class Reloader:
    """Reads settings again and has them applied.

    load: reads them, blocking; raises SettingsError. None when there is no file to read. apply: puts them in
    force as a whole, or raises TokenizerError, TlsFileError or ReloadRefusedError and changes nothing.
    """

    def __init__(
        self,
        load: Callable[[], Settings] | None,
        apply: Callable[[Settings], Awaitable[ReloadReport]],
        metrics: Metrics,
    ) -> None:
        self._load = load
        self._apply = apply
        self._metrics = metrics
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self) -> Reply:
        """Reload once; return what came of it, as the admin listener says it. Never raises."""
        if self._load is None:
            return _refused("the router was started without --config: there is no file to read again")
        async with self._one_at_a_time:
            try:
                report = await self._apply(await asyncio.to_thread(self._load))
            except ReloadRefusedError as error:
                return _refused(str(error))
            except SettingsError as error:
                return self._failed(error.problems)
            except TokenizerError as error:
                return self._failed([Problem("", None, "routing.prefix.tokenizer", str(error))])
            except TlsFileError as error:
                return self._failed([Problem("", None, error.name, str(error))])
            except Exception:
                logger.exception("reload failed in the router")
                self._metrics.configuration_reloaded(success=False)
                message = "the router failed while it reloaded; see its log"
                return Reply(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": message})
        return Reply(HTTPStatus.OK, report.document())

    def _failed(self, problems: tuple[Problem, ...] | list[Problem]) -> Reply:
        self._metrics.configuration_reloaded(success=False)
        for problem in problems:
            logger.error("reload refused: %s", problem)
        document = {
            "error": "the configuration has mistakes; nothing was changed",
            "problems": [to_builtins(problem) for problem in problems],
        }
        return Reply(HTTPStatus.UNPROCESSABLE_ENTITY, document)


def _refused(why: str) -> Reply:
    logger.warning("reload refused: %s", why)
    return Reply(HTTPStatus.CONFLICT, {"error": why})
