"""Ray Serve's asynchronous inference over queues: the adapter for ``@task_consumer``, and a policy of scaling.

What stands here uses the handles of the client (``client/``) and the classes of ``ray.serve.schema``; no broker and no
actor is made here.  Enter at ``processor.py`` and ``scaling.py``; ``tasks.py`` and ``retrying.py`` decide, and
have neither Ray nor IO.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raybroker.serve.adapter_config import RaybrokerAdapterConfig
    from raybroker.serve.processor import RaybrokerTaskProcessor
    from raybroker.serve.scaling import RaybrokerAutoscalingPolicy

__all__ = ["RaybrokerAdapterConfig", "RaybrokerAutoscalingPolicy", "RaybrokerTaskProcessor"]

_HOMES = {
    "RaybrokerAdapterConfig": "raybroker.serve.adapter_config",
    "RaybrokerAutoscalingPolicy": "raybroker.serve.scaling",
    "RaybrokerTaskProcessor": "raybroker.serve.processor",
}
"""Public name → its module, imported when the name is first used: Ray Serve takes seconds to import."""


def _found(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'raybroker.serve' has no attribute {name!r}")
    from raybroker.model.packages import naming_extra

    with naming_extra(f"rb.serve.{name}"):
        module = import_module(_HOMES[name])
    found = globals()[name] = getattr(module, name)
    return found


if not TYPE_CHECKING:  # A type checker knows the names above, and no others.
    __getattr__ = _found
