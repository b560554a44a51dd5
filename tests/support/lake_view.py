"""A lake beside a server, as the API shows it."""

from taskyard.shared.api_types import LakeView


def lake_view(*, running: bool) -> LakeView:
    return LakeView(
        running=running,
        pid=4711 if running else None,
        restarts=3,
        state="following" if running else "waiting",
        next_seq=100,
        lag_records=7,
        lag_seconds=2.5,
        last_time="2030-01-31T08:00:00Z",
        events_per_second=12.5 if running else None,
        error=None if running else "it ended with code 1",
        ui="http://127.0.0.1:4040" if running else None,
    )
