"""What a Kubernetes API server keeps: objects, one version counter for all of them, and a log of changes.

Faithful in what clients rely on: every change gets the next resourceVersion; an update with another version
than the stored one is a conflict; an update that changes nothing is no change; status is a world of its own
where a resource says so; an object with finalizers is only marked when it is deleted; what is older than the
last compaction cannot be watched any more. No network here.
"""

from __future__ import annotations

import copy
import itertools
import re
import uuid
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
CREATED_AT = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of objects. status: whether it has the status subresource; group "" is the core."""

    group: str
    version: str
    plural: str
    kind: str
    status: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"


ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
PODS = Resource("", "v1", "pods", "Pod", status=True)


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the log. before, after: None for an object that did not or does not exist."""

    version: int
    resource: Resource
    before: Object | None
    after: Object | None


class StatusError(Exception):
    """An answer that is a Status object."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason

    def document(self) -> Object:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.code,
        }


Key = tuple[Resource, str, str]


class Store:
    """Objects by resource, namespace and name. The versions start high: nobody may count on small numbers."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.log: list[Change] = []
        self.version = 1000
        self.compacted = 0
        self._generated = itertools.count()

    def create(self, resource: Resource, namespace: str, document: Object) -> Object:
        new = copy.deepcopy(document)
        metadata = new.setdefault("metadata", {})
        if "name" not in metadata:
            if "generateName" not in metadata:
                raise StatusError(422, "Invalid", "metadata.name: Required value")
            metadata["name"] = f"{metadata['generateName']}{next(self._generated):05d}"
        if metadata.get("namespace", namespace) != namespace:
            raise StatusError(400, "BadRequest", "the namespace of the object is not that of the request")
        key = (resource, namespace, metadata["name"])
        if key in self.objects:
            raise StatusError(409, "AlreadyExists", f'{resource.plural} "{key[2]}" already exists')
        if resource.status:
            new.pop("status", None)
        metadata.update(
            namespace=namespace, uid=str(uuid.uuid4()), creationTimestamp=CREATED_AT, generation=1
        )
        new.update(apiVersion=resource.api_version, kind=resource.kind)
        return self._write(key, None, new)

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        try:
            return copy.deepcopy(self.objects[resource, namespace, name])
        except KeyError:
            raise StatusError(404, "NotFound", f'{resource.plural} "{name}" not found') from None

    def replace(
        self, resource: Resource, namespace: str, name: str, document: Object, *, status: bool = False
    ) -> Object:
        """Update a whole object; with `status` only its status, else everything but that."""
        old = self.get(resource, namespace, name)
        given = document.get("metadata", {}).get("resourceVersion")
        if given is None and resource.status:
            raise StatusError(422, "Invalid", "metadata.resourceVersion: must be specified for an update")
        if given is not None and given != old["metadata"]["resourceVersion"]:
            raise StatusError(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {resource.plural} "{name}": the object has been modified; '
                "please apply your changes to the latest version and try again",
            )
        if status:
            new = {**old, "status": copy.deepcopy(document.get("status"))}
        else:
            new = copy.deepcopy(document)
            if resource.status:
                new.pop("status", None)
                if "status" in old:
                    new["status"] = old["status"]
            kept = ("uid", "creationTimestamp", "namespace", "name", "generation", "deletionTimestamp")
            new["metadata"] = {
                **new.get("metadata", {}),
                **{field: old["metadata"][field] for field in kept if field in old["metadata"]},
            }
            new.update(apiVersion=resource.api_version, kind=resource.kind)
            if _content(new) != _content(old):
                new["metadata"]["generation"] += 1
        new["metadata"] = {**new["metadata"], "resourceVersion": old["metadata"]["resourceVersion"]}
        if new == old:
            return old
        key = (resource, namespace, name)
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            self._remove(key, new)
            return new
        return self._write(key, old, new)

    def patch(
        self, resource: Resource, namespace: str, name: str, patch: Object, *, status: bool = False
    ) -> Object:
        """Merge as RFC 7386 says; a resourceVersion in the patch must be the stored one."""
        old = self.get(resource, namespace, name)
        merged = _merged(old, patch)
        return self.replace(resource, namespace, name, merged, status=status)

    def delete(self, resource: Resource, namespace: str, name: str) -> Object:
        old = self.get(resource, namespace, name)
        key = (resource, namespace, name)
        if not old["metadata"].get("finalizers"):
            return self._remove(key, old)
        if "deletionTimestamp" in old["metadata"]:
            return old
        new = copy.deepcopy(old)
        new["metadata"]["deletionTimestamp"] = CREATED_AT
        return self._write(key, old, new)

    def listed(self, resource: Resource, namespace: str | None) -> list[Object]:
        """All objects of a kind, in one namespace or all, in the order of their names."""
        keys = sorted(
            (key for key in self.objects if key[0] == resource and namespace in (None, key[1])),
            key=lambda key: key[1:],
        )
        return [copy.deepcopy(self.objects[key]) for key in keys]

    def compact(self) -> None:
        """Forget how the present state came about: who is behind it must list again."""
        self.log.clear()
        self.compacted = self.version

    def _write(self, key: Key, old: Object | None, new: Object) -> Object:
        self.version += 1
        new = copy.deepcopy(new)
        new["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = new
        self.log.append(Change(self.version, key[0], old, copy.deepcopy(new)))
        return copy.deepcopy(new)

    def _remove(self, key: Key, last: Object) -> Object:
        self.version += 1
        del self.objects[key]
        last = copy.deepcopy(last)
        last["metadata"]["resourceVersion"] = str(self.version)
        self.log.append(Change(self.version, key[0], last, None))
        return last


class Selector:
    """A label selector in its text form: `a=b,c!=d,e in (f,g),h notin (i),j,!k`."""

    def __init__(self, text: str) -> None:
        self._terms = [term.strip() for term in re.split(r",(?![^(]*\))", text) if term.strip()]

    def matches(self, document: Object | None) -> bool:
        labels = (document or {}).get("metadata", {}).get("labels", {})
        return document is not None and all(self._holds(term, labels) for term in self._terms)

    @staticmethod
    def _holds(term: str, labels: dict[str, str]) -> bool:
        if found := re.fullmatch(r"(\S+)\s+(in|notin)\s+\((.*)\)", term):
            values = {value.strip() for value in found[3].split(",")}
            return (labels.get(found[1]) in values) == (found[2] == "in")
        if found := re.fullmatch(r"([^=!]+?)\s*(==|=|!=)\s*(.*)", term):
            return (labels.get(found[1]) == found[3]) == (found[2] != "!=")
        if term.startswith("!"):
            return term[1:].strip() not in labels
        return term in labels


def _content(document: Object) -> Object:
    return {name: value for name, value in document.items() if name not in ("metadata", "status")}


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged
