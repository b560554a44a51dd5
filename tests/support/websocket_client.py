"""The `connect` of the websockets library, as patient as the rest of the tests."""

from functools import partial

from websockets.sync import client

HANG_GUARD = 120.0

# Its own ten seconds are not enough on a machine that does many things at once.
connect = partial(client.connect, open_timeout=HANG_GUARD)
