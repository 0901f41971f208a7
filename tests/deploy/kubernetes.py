"""A strict description of the parts of Kubernetes' and KubeRay's objects that our manifests use, as JSON schemas.

Kubernetes drops fields it does not know without a word, and the full description of a RayCluster is a megabyte.  So
every object here takes the fields that are written down and no others: what a manifest newly uses is added here, with
its form, after a look at the reference.  ``references`` then checks what no schema can: that names lead somewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema

Object = Mapping[str, Any]


def closed(required: str = "", **properties: Any) -> dict[str, Any]:
    """An object with these fields and no others; ``required``: names separated by spaces."""
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}


def each(item: Any, least: int = 1) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": least}


def text(pattern: str, most: int = 253) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^(?:{pattern})$", "maxLength": most, "minLength": 1}


LABEL = text(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", 63)
PORT_NAME = text(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]*[a-z0-9])?", 15)
SUBDOMAIN = text(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
LABELS = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": text(r"[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?", 63),
    "propertyNames": text(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?", 317),
}
PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
CPU = text(r"\d+m|\d+(\.\d{1,3})?")
BYTES = text(r"\d+(Ki|Mi|Gi|Ti)")
STRING = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}
TRUE = {"const": True}
PATH = text(r"/[\w./-]*[\w-]", 4096)
IMAGE = text(r"[a-z0-9][\w./-]*:[\w][\w.-]*")
TCP = {"const": "TCP"}

META = closed("name", name=SUBDOMAIN, labels=LABELS)
SELECTOR = closed("matchLabels", matchLabels=LABELS)
SECRET_KEY = closed("secretKeyRef", secretKeyRef=closed("name key", name=SUBDOMAIN, key=text(r"[-\w.]+")))
ENV = {
    **closed("name", name=text(r"[A-Za-z_][A-Za-z0-9_]*"), value=STRING, valueFrom=SECRET_KEY),
    "oneOf": [{"required": ["value"]}, {"required": ["valueFrom"]}],
}
RESOURCES = closed(
    "requests", requests=closed("cpu memory", cpu=CPU, memory=BYTES), limits=closed(cpu=CPU, memory=BYTES)
)
PORT_OR_NAME = {"anyOf": [PORT, PORT_NAME]}
SECONDS = {"type": "integer", "minimum": 1}
PROBE = {
    **closed(
        httpGet=closed("path port", path=PATH, port=PORT_OR_NAME),
        tcpSocket=closed("port", port=PORT_OR_NAME),
        periodSeconds=SECONDS,
        timeoutSeconds=SECONDS,
        failureThreshold=SECONDS,
    ),
    "oneOf": [{"required": ["httpGet"]}, {"required": ["tcpSocket"]}],
}
CONTAINER = closed(
    "name image resources",
    name=LABEL,
    image=IMAGE,
    args=each(STRING),
    env=each(ENV),
    resources=RESOURCES,
    ports=each(closed("name containerPort", name=PORT_NAME, containerPort=PORT)),
    volumeMounts=each(closed("name mountPath", name=LABEL, mountPath=PATH, readOnly={"type": "boolean"})),
    lifecycle=closed("postStart", postStart=closed("exec", exec=closed("command", command=each(STRING)))),
    startupProbe=PROBE,
    livenessProbe=PROBE,
    readinessProbe=PROBE,
)
VOLUME = {
    **closed(
        "name",
        name=LABEL,
        configMap=closed("name", name=SUBDOMAIN),
        persistentVolumeClaim=closed("claimName", claimName=SUBDOMAIN),
    ),
    "oneOf": [{"required": ["configMap"]}, {"required": ["persistentVolumeClaim"]}],
}
ANTI_AFFINITY = closed(
    "preferredDuringSchedulingIgnoredDuringExecution",
    preferredDuringSchedulingIgnoredDuringExecution=each(
        closed(
            "weight podAffinityTerm",
            weight={"type": "integer", "minimum": 1, "maximum": 100},
            podAffinityTerm=closed("topologyKey", topologyKey=STRING, labelSelector=SELECTOR),
        )
    ),
)
POD = closed(
    "containers securityContext",
    containers=each(CONTAINER),
    volumes=each(VOLUME),
    terminationGracePeriodSeconds=COUNT,
    affinity=closed(podAntiAffinity=ANTI_AFFINITY),
    securityContext=closed(
        "runAsNonRoot runAsUser",
        runAsNonRoot=TRUE,
        runAsUser={"type": "integer", "minimum": 1},
        runAsGroup=COUNT,
        fsGroup=COUNT,
    ),
)
TEMPLATE = closed("metadata spec", metadata=closed("labels", labels=LABELS), spec=POD)
CLAIM = closed(
    "accessModes resources",
    accessModes=each({"enum": ["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"]}),
    resources=closed("requests", requests=closed("storage", storage=BYTES)),
)
START = {"type": "object", "additionalProperties": STRING, "propertyNames": text(r"[a-z]+(-[a-z]+)*")}
GROUP = closed(
    "groupName replicas minReplicas maxReplicas rayStartParams template",
    groupName=LABEL,
    replicas=COUNT,
    minReplicas=COUNT,
    maxReplicas=COUNT,
    rayStartParams=START,
    template=TEMPLATE,
)
RAY_CLUSTER = closed(
    "rayVersion authOptions gcsFaultToleranceOptions headGroupSpec workerGroupSpecs",
    rayVersion=text(r"\d+\.\d+\.\d+"),
    authOptions=closed("mode", mode={"const": "token"}),
    gcsFaultToleranceOptions=closed(
        "redisAddress redisPassword",
        redisAddress=text(r"[-a-z0-9.]+:\d+"),
        redisPassword=closed("valueFrom", valueFrom=SECRET_KEY),
    ),
    headGroupSpec=closed("rayStartParams template", rayStartParams=START, template=TEMPLATE),
    workerGroupSpecs=each(GROUP),
)
SERVICE = closed(
    "selector ports",
    clusterIP={"const": "None"},
    publishNotReadyAddresses={"type": "boolean"},
    selector=LABELS,
    ports=each(closed("name port targetPort", name=LABEL, port=PORT, targetPort={"anyOf": [PORT, PORT_NAME]})),
)
STATEFUL_SET = closed(
    "serviceName replicas selector template",
    serviceName=LABEL,
    replicas=COUNT,
    selector=SELECTOR,
    template=TEMPLATE,
    volumeClaimTemplates=each(closed("metadata spec", metadata=META, spec=CLAIM)),
)
PEER = {**closed(podSelector=SELECTOR, namespaceSelector=SELECTOR), "minProperties": 1}
POLICY = closed(
    "podSelector policyTypes ingress",
    podSelector=SELECTOR,
    policyTypes=each({"enum": ["Ingress"]}),
    ingress=each(closed("from", **{"from": each(PEER)}, ports=each(closed("protocol port", protocol=TCP, port=PORT)))),
)

KINDS: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("v1", "ConfigMap"): ("data", {"type": "object", "additionalProperties": STRING, "minProperties": 1}),
    ("v1", "Service"): ("spec", SERVICE),
    ("v1", "PersistentVolumeClaim"): ("spec", CLAIM),
    ("apps/v1", "StatefulSet"): ("spec", STATEFUL_SET),
    ("networking.k8s.io/v1", "NetworkPolicy"): ("spec", POLICY),
    ("ray.io/v1", "RayCluster"): ("spec", RAY_CLUSTER),
}
"""(apiVersion, kind) → the name of its content beside the metadata, and the form of that."""


def form_faults(thing: Object) -> Iterator[str]:
    """Where an object is not of its kind's form."""
    kind = (thing.get("apiVersion"), thing.get("kind"))
    if kind not in KINDS:
        yield f"{kind} is not described here"
        return
    name, content = KINDS[kind]  # type: ignore[index]
    fields = {"apiVersion": STRING, "kind": STRING, "metadata": META, name: content}
    schema = closed(" ".join(fields), **fields)
    for error in jsonschema.Draft202012Validator(schema).iter_errors(thing):
        yield f"{kind[1]} {thing.get('metadata', {}).get('name')}: {error.json_path}: {error.message[:200]}"


def pods(thing: Object) -> Iterator[tuple[str, Object]]:
    """(name, template) of every pod that an object makes; KubeRay's own label is added as KubeRay does."""
    spec = thing.get("spec", {})
    if thing["kind"] == "RayCluster":
        groups = [("head", spec["headGroupSpec"]), *((group["groupName"], group) for group in spec["workerGroupSpecs"])]
        for name, group in groups:
            labels = {**group["template"]["metadata"]["labels"], "ray.io/cluster": thing["metadata"]["name"]}
            yield name, {**group["template"], "metadata": {"labels": labels}}
    elif thing["kind"] == "StatefulSet":
        yield thing["metadata"]["name"], spec["template"]


def reference_faults(things: list[Object], secrets: frozenset[tuple[str, str]]) -> Iterator[str]:
    """Names that lead nowhere; ``secrets``: (name, key) of those that the user is told to make."""
    names = {(thing["kind"], thing["metadata"]["name"]) for thing in things}
    if len(names) != len(things):
        yield "two objects of one kind have one name"
    templates = [(name, template) for thing in things for name, template in pods(thing)]
    for thing in things:
        claims = {claim["metadata"]["name"] for claim in thing.get("spec", {}).get("volumeClaimTemplates", [])}
        for name, template in pods(thing):
            yield from _pod_faults(name, template["spec"], names, claims, secrets)
        if thing["kind"] == "StatefulSet":
            if ("Service", thing["spec"]["serviceName"]) not in names:
                yield f"{thing['metadata']['name']}: there is no service {thing['spec']['serviceName']}"
            if not _selects(thing["spec"]["selector"]["matchLabels"], thing["spec"]["template"]):
                yield f"{thing['metadata']['name']} does not select its own pods"
        for what, labels, ports in _selections(thing):
            chosen = [template for _, template in templates if _selects(labels, template)]
            if not chosen:
                yield f"{thing['metadata']['name']}: {what} selects no pod: {dict(labels)}"
            for port in ports:
                if not all(port in _port_names(template) for template in chosen):
                    yield f"{thing['metadata']['name']}: not every pod has a port named {port}"


def _pod_faults(
    name: str, pod: Object, names: set[tuple[str, str]], claims: set[str], secrets: frozenset[tuple[str, str]]
) -> Iterator[str]:
    volumes = {volume["name"] for volume in pod.get("volumes", [])} | claims
    for volume in pod.get("volumes", []):
        for kind, field in (("ConfigMap", "configMap"), ("PersistentVolumeClaim", "persistentVolumeClaim")):
            wanted = volume.get(field, {})
            if wanted and (kind, wanted.get("name") or wanted.get("claimName")) not in names:
                yield f"{name}: volume {volume['name']}: there is no such {kind}"
    for container in pod["containers"]:
        mounted = [mount["name"] for mount in container.get("volumeMounts", [])]
        yield from (f"{name}: mounts {mount}, which is no volume" for mount in mounted if mount not in volumes)
        yield from (f"{name}: volume {volume} is not mounted" for volume in sorted(volumes - set(mounted)))
        for variable in container.get("env", []):
            key = variable.get("valueFrom", {}).get("secretKeyRef")
            if key and (key["name"], key["key"]) not in secrets:
                yield f"{name}: nobody makes the secret {key}"


def _selections(thing: Object) -> Iterator[tuple[str, Object, list[str]]]:
    spec = thing.get("spec", {})
    if thing["kind"] == "Service":
        named = [port["targetPort"] for port in spec["ports"] if isinstance(port["targetPort"], str)]
        yield "it", spec["selector"], named
    if thing["kind"] == "NetworkPolicy":
        yield "it", spec["podSelector"]["matchLabels"], []
        for rule in spec["ingress"]:
            for peer in rule["from"]:
                if "namespaceSelector" not in peer:
                    yield "a rule", peer["podSelector"]["matchLabels"], []


def _selects(labels: Object, template: Object) -> bool:
    return labels.items() <= template["metadata"]["labels"].items()


def _port_names(template: Object) -> set[str]:
    return {port["name"] for container in template["spec"]["containers"] for port in container.get("ports", [])}
