"""A real Prometheus as a process, that reads one target often."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.prometheus_api import PrometheusApi
from tests.support.tools import tool


@asynccontextmanager
async def prometheus_process(folder: Path, target: str, rules: Path) -> AsyncIterator[PrometheusApi]:
    """Run it in `folder` until the block ends. It reads `target` (host:port) twice a second, as router."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "prometheus.yml"
    config.write_text(
        json.dumps(
            {
                "global": {
                    "scrape_interval": "500ms",
                    "scrape_timeout": "500ms",
                    "evaluation_interval": "500ms",
                },
                "rule_files": [str(rules)],
                "scrape_configs": [{"job_name": "prefix-router", "static_configs": [{"targets": [target]}]}],
            }
        )
    )
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            tool("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=log,
            stderr=log,
        )
    try:
        yield PrometheusApi(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        await process.wait()
