"""The dialects under test. A new one joins by its module here and its name in ADAPTERS."""

from interop.adapters.api import ApiAdapter
from interop.adapters.base import Adapter
from interop.adapters.glovebox import GloveboxAdapter
from interop.adapters.masenko import MasenkoAdapter
from interop.adapters.redis import RedisAdapter
from interop.adapters.workq import WorkqAdapter

ADAPTERS: tuple[type[Adapter], ...] = (
    MasenkoAdapter,
    WorkqAdapter,
    GloveboxAdapter,
    ApiAdapter,
    RedisAdapter,
)
