"""The protocols under test. A new one joins by its module here and its name in ADAPTERS."""

from protocols.interop.adapters.api import ApiAdapter
from protocols.interop.adapters.base import Adapter
from protocols.interop.adapters.glovebox import GloveboxAdapter
from protocols.interop.adapters.masenko import MasenkoAdapter
from protocols.interop.adapters.redis import RedisAdapter
from protocols.interop.adapters.workq import WorkqAdapter

ADAPTERS: tuple[type[Adapter], ...] = (
    MasenkoAdapter,
    WorkqAdapter,
    GloveboxAdapter,
    ApiAdapter,
    RedisAdapter,
)
