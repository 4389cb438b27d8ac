"""Flags of the command line that stand for settings, and win over the file.

One table says which flag sets which setting; type, range, default and help come from the model. A value
is carried as the text that was typed and judged where the file's values are judged, so that mistakes in
flags and in the file are reported together and in the same words.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prefix_router.settings.document import Entry, Mapping, Node, Scalar, Sequence
from prefix_router.settings.fields import choices_of, leaves
from prefix_router.settings.problems import COMMAND_LINE, Origin

if TYPE_CHECKING:
    from collections.abc import Sequence as AbstractSequence

    from prefix_router.settings.fields import Field

BACKENDS = "backends"

FLAGS: dict[str, str] = {
    "--host": "listen.host",
    "--port": "listen.port",
    "--admin-host": "admin.host",
    "--admin-port": "admin.port",
    "--workers": "workers",
    "--strategy": "routing.strategy",
    "--prefix-depth": "routing.prefix.depth",
    "--prefix-length": "routing.prefix.length",
    "--prefix-unit": "routing.prefix.unit",
    "--prefix-anchor": "routing.prefix.anchor",
    "--prefix-tokenizer": "routing.prefix.tokenizer",
    "--concurrency-threshold": "routing.concurrency_threshold",
    "--virtual-nodes": "routing.ring.virtual_nodes",
    "--max-body-bytes": "limits.max_body_bytes",
    "--connect-timeout-seconds": "timeouts.connect_seconds",
    "--first-byte-timeout-seconds": "timeouts.first_byte_seconds",
    "--idle-timeout-seconds": "timeouts.idle_seconds",
    "--shutdown-delay-seconds": "timeouts.shutdown_delay_seconds",
    "--shutdown-grace-seconds": "timeouts.shutdown_grace_seconds",
    "--max-attempts": "retry.max_attempts",
    "--health-interval-seconds": "health.interval_seconds",
    "--engine-metrics-interval-seconds": "engine_metrics.interval_seconds",
    "--log-level": "logging.level",
    "--log-format": "logging.format",
    "--access-log": "logging.access",
    "--decision-headers": "response_headers.decision",
}
"""Flag -> dotted path of the setting. A boolean setting has the flag `--no-…` as well."""


@dataclass(frozen=True, slots=True)
class Given:
    """One flag as it was typed; `path` is the setting it stands for."""

    flag: str
    path: str
    value: str | bool


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--backend`, `--worker-urls` and all of `FLAGS` to a parser. `given_flags` reads them back."""
    group = parser.add_argument_group(
        "settings (a flag wins over the file; `prefix-router schema` lists all)"
    )
    group.add_argument(
        "--backend",
        action=_AppendUrl,
        default=argparse.SUPPRESS,
        metavar="URL",
        help="A vLLM replica, such as http://10.0.0.1:8000; once for each. They replace all of the file's.",
    )
    group.add_argument(
        "--worker-urls",
        action=_AppendUrls,
        nargs="+",
        default=argparse.SUPPRESS,
        metavar="URL",
        help="The same as several --backend, separated by spaces or commas.",
    )
    settings = {field.path: field for field in leaves()}
    for flag, path in FLAGS.items():
        _add_flag(group, flag, settings[path])


def _add_flag(group: argparse._ArgumentGroup, flag: str, setting: Field) -> None:
    help_text = f"{setting.description} {setting.facts}".replace("%", "%%")
    options: dict[str, Any] = {"dest": setting.path, "default": argparse.SUPPRESS, "help": help_text}
    if isinstance(setting.default, bool):
        group.add_argument(flag, action=argparse.BooleanOptionalAction, **options)
        return
    group.add_argument(flag, metavar=_metavar(setting), **options)


def _metavar(setting: Field) -> str:
    if choices_of(setting.annotation):
        return "NAME"
    if isinstance(setting.default, int | float):
        return "SECONDS" if setting.path.endswith("_seconds") else "N"
    return "PATH" if setting.path.endswith("tokenizer") else "HOST"


class _AppendUrl(argparse.Action):
    """Collects backends of both flags in the order in which they were typed."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        del parser
        given = [*getattr(namespace, BACKENDS, ()), (option_string or "", values)]
        setattr(namespace, BACKENDS, given)


class _AppendUrls(_AppendUrl):
    """Collects several backends from one flag."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        for url in (url for value in values for url in value.split(",") if url):
            super().__call__(parser, namespace, url, option_string)


def given_flags(namespace: argparse.Namespace) -> tuple[Given, ...]:
    """The settings among the parsed arguments."""
    values = vars(namespace)
    backends = (Given(flag, BACKENDS, url) for flag, url in values.get(BACKENDS, ()))
    others = (Given(flag, path, values[path]) for flag, path in FLAGS.items() if path in values)
    return (*backends, *others)


def apply_flags(root: Mapping, flags: AbstractSequence[Given]) -> Mapping:
    """Return a tree with the flags' values in place of the file's own, mistakes included."""
    urls = [given for given in flags if given.path == BACKENDS]
    if urls:
        root = _put(root, [BACKENDS], _backends(urls), Origin(COMMAND_LINE, flag=urls[0].flag))
    for given in flags:
        if given.path != BACKENDS:
            origin = Origin(COMMAND_LINE, flag=_typed_name(given))
            node = Scalar(origin, given.value, str(given.value), typed=isinstance(given.value, bool))
            root = _put(root, given.path.split("."), node, origin)
    return root


def _typed_name(given: Given) -> str:
    return given.flag.replace("--", "--no-", 1) if given.value is False else given.flag


def _backends(urls: AbstractSequence[Given]) -> Sequence:
    items: list[Node] = []
    for number, given in enumerate(urls, start=1):
        origin = Origin(
            COMMAND_LINE, flag=given.flag if len(urls) == 1 else f"{given.flag} (backend {number})"
        )
        url = Scalar(origin, given.value, str(given.value), typed=False)
        items.append(Mapping(origin, {"url": Entry(origin, url)}))
    return Sequence(items[0].origin, tuple(items))


def _put(mapping: Mapping, path: list[str], node: Node, origin: Origin) -> Mapping:
    name, *rest = path
    if rest:
        entry = mapping.entries.get(name)
        inner = entry.node if entry is not None else Mapping(origin)
        if isinstance(inner, Scalar) and inner.value is None:
            inner = Mapping(inner.origin)
        if not isinstance(inner, Mapping):
            return mapping  # the file is wrong here, and that will be reported
        node = _put(inner, rest, node, origin)
    return Mapping(mapping.origin, {**mapping.entries, name: Entry(origin, node)}, mapping.repeated)
