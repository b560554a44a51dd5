"""What KEDA accepts, as JSON Schemas: as much of its documentation as the manifests make use of.

KEDA's own definition leaves `metadata` of a trigger open. Here it is closed, with the parameters of
the trigger `metrics-api`: a misspelt one would be found by nobody.
"""

from typing import Any

Schema = dict[str, Any]

_NAME: Schema = {"type": "string", "pattern": r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_NUMBER_AS_TEXT: Schema = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"}


def _closed(required: list[str], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _resource(kind: str, spec: Schema) -> Schema:
    labels: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
    metadata = _closed(["name"], name=_NAME, namespace=_NAME, labels=labels, annotations=labels)
    version: Schema = {"const": "keda.sh/v1alpha1"}
    return _closed(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion=version,
        kind={"const": kind},
        metadata=metadata,
        spec=spec,
    )


METRICS_API: Schema = _closed(
    ["url", "valueLocation", "targetValue"],
    url={"type": "string", "pattern": "^https?://"},
    format={"enum": ["json", "xml", "yaml", "prometheus"]},
    valueLocation={"type": "string", "minLength": 1},
    targetValue=_NUMBER_AS_TEXT,
    activationTargetValue=_NUMBER_AS_TEXT,
    unsafeSsl={"enum": ["true", "false"]},
    authMode={"enum": ["apiKey", "basic", "tls", "bearer"]},
    method={"enum": ["header", "query"]},
    keyParamName={"type": "string"},
)
_TRIGGER = _closed(
    ["type", "metadata"],
    type={"const": "metrics-api"},
    name={"type": "string"},
    metadata=METRICS_API,
    useCachedMetrics={"type": "boolean"},
    metricType={"enum": ["AverageValue", "Value", "Utilization"]},
    authenticationRef=_closed(
        ["name"],
        name=_NAME,
        kind={"enum": ["TriggerAuthentication", "ClusterTriggerAuthentication"]},
    ),
)
SCALED_OBJECT = _resource(
    "ScaledObject",
    _closed(
        ["scaleTargetRef", "triggers"],
        scaleTargetRef=_closed(
            ["name"],
            name=_NAME,
            apiVersion={"type": "string"},
            kind={"type": "string"},
            envSourceContainerName=_NAME,
        ),
        pollingInterval=_COUNT,
        cooldownPeriod=_COUNT,
        initialCooldownPeriod=_COUNT,
        idleReplicaCount={"const": 0},
        minReplicaCount=_COUNT,
        maxReplicaCount={"type": "integer", "minimum": 1},
        fallback=_closed(
            ["failureThreshold", "replicas"], failureThreshold=_COUNT, replicas=_COUNT
        ),
        triggers={"type": "array", "items": _TRIGGER, "minItems": 1},
    ),
)
TRIGGER_AUTHENTICATION = _resource(
    "TriggerAuthentication",
    _closed(
        ["secretTargetRef"],
        secretTargetRef={
            "type": "array",
            "items": _closed(
                ["parameter", "name", "key"],
                parameter={
                    "enum": ["apiKey", "username", "password", "ca", "cert", "key", "token"]
                },
                name=_NAME,
                key={"type": "string"},
            ),
            "minItems": 1,
        },
    ),
)
SCHEMAS = {"ScaledObject": SCALED_OBJECT, "TriggerAuthentication": TRIGGER_AUTHENTICATION}
