"""docker-compose.yml as the tests read it: its variables at their defaults, its short forms taken apart.

Only what this repository's file uses is understood; anything else raises, so that a new form in the file
is noticed here instead of being read wrongly.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.tools import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COMPOSE_FILE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "Dockerfile"

_ENTRYPOINTS = {"prom/prometheus": ("prometheus",)}
"""What images of others say of themselves, as far as their services are run here."""

_VARIABLE = re.compile(r"\$\{[A-Z0-9_]+:-([^}]*)\}")


@dataclass(frozen=True, slots=True)
class Published:
    """One published port: `host:outside` reaches `inside` in the container."""

    host: str
    outside: int
    inside: int


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted file or folder of the checkout, or a named volume (then `volume` is its name)."""

    source: Path | None
    volume: str | None
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Service:
    """One service of the file."""

    name: str
    definition: Mapping[str, Any]

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profiles that start it; none means always."""
        return tuple(self.definition.get("profiles", ()))

    @property
    def image(self) -> str:
        return str(self.definition["image"])

    @property
    def command(self) -> tuple[str, ...]:
        return tuple(self.definition.get("command", ()))

    @property
    def environment(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.definition.get("environment", {}).items()}

    @property
    def healthcheck(self) -> tuple[str, ...]:
        """The command of the health check, as an argument list."""
        kind, *command = self.definition["healthcheck"]["test"]
        if kind != "CMD":
            raise ValueError(f"{self.name}: a health check in the form {kind}")
        return tuple(command)

    @property
    def published(self) -> tuple[Published, ...]:
        fields = [str(text).rsplit(":", 2) for text in self.definition.get("ports", ())]
        return tuple(Published(host, int(outside), int(inside)) for host, outside, inside in fields)

    @property
    def listens_on(self) -> tuple[int, ...]:
        """Every port that the file says the container listens on."""
        exposed = tuple(int(port) for port in self.definition.get("expose", ()))
        return tuple(port.inside for port in self.published) + exposed

    @property
    def mounts(self) -> tuple[Mount, ...]:
        return tuple(_mount(text) for text in self.definition.get("volumes", ()))

    @property
    def depends_on(self) -> dict[str, str]:
        """Service name -> the condition that is waited for."""
        return {name: how["condition"] for name, how in self.definition.get("depends_on", {}).items()}


def load_services() -> dict[str, Service]:
    """Read the file with every variable at its default."""
    text = _VARIABLE.sub(r"\1", COMPOSE_FILE.read_text(encoding="utf-8"))
    if "$" in text:
        raise ValueError("a variable without a default, or a $ in another role")
    return {name: Service(name, value) for name, value in yaml.safe_load(text)["services"].items()}


def dockerfile_instruction(name: str) -> str:
    """Return the arguments of the last instruction of that name, its lines joined."""
    text = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    return str(re.findall(rf"^{name}\s+(.*)$", text, flags=re.MULTILINE)[-1])


def entrypoint(service: Service) -> tuple[str, ...]:
    """What the container runs in front of its command: the service's own, or its image's."""
    if "entrypoint" in service.definition:
        return tuple(service.definition["entrypoint"])
    if is_ours(service):
        return tuple(json.loads(dockerfile_instruction("ENTRYPOINT")))
    return _ENTRYPOINTS[service.image.partition(":")[0]]


def is_ours(service: Service) -> bool:
    """Whether the service runs the image that this repository builds."""
    return service.image.startswith("prefix-router:")


def _mount(text: str) -> Mount:
    source, target, *options = text.split(":")
    read_only = options == ["ro"]
    if source.startswith("./"):
        return Mount(ROOT / source, None, target, read_only)
    return Mount(None, source, target, read_only)
