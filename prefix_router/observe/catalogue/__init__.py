"""Every metric the router exports: name, type, labels, unit and meaning, one file for each subject.

The catalogue is the contract with dashboards and alerts. `observe.exposition` refuses to export a name that
is not in it, and `observe.reference` writes the tables of docs/metrics.md from it, so code and text cannot
drift apart. After a change: `make reference`.

Labels come from closed sets only: the names of the fleet, `Reason`, `BackendState`, `RetryCause`,
`ErrorCode`, `Surprise`, the buckets of shared prefixes, and a few status classes. Models, paths and clients
are never labels: whoever can invent values could fill the memory of the router and of Prometheus.
"""

from __future__ import annotations

from prefix_router.observe.catalogue.backends import BACKENDS
from prefix_router.observe.catalogue.caches import CACHES
from prefix_router.observe.catalogue.latency import LATENCY
from prefix_router.observe.catalogue.metric import NONE, OTHER, PREFIX, Group, Kind, Metric
from prefix_router.observe.catalogue.requests import REQUESTS
from prefix_router.observe.catalogue.router import ROUTER

__all__ = ["CATALOGUE", "GROUPS", "NONE", "OTHER", "PREFIX", "Group", "Kind", "Metric"]

GROUPS = (REQUESTS, LATENCY, BACKENDS, CACHES, ROUTER)

CATALOGUE = tuple(metric for group in GROUPS for metric in group.metrics)
