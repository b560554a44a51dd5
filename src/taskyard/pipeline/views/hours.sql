/*
title = "Hours"
about = "Each hour of each queue, from the first in which something happened to the last that the lake has seen."
[columns]
queue = ["", ""]
hour = ["", "when it begins"]
ended = ["", "when it ended; in the lake's last hour, when the last record was written"]
seconds = ["s", "how much of it the lake has seen; 3600, but for the lake's first and last hour"]
arrivals = ["jobs", "pushed, or come from another queue"]
finishes = ["jobs", ""]
failures = ["jobs", "for good"]
retries = ["attempts", ""]
depth = ["jobs", "how many waited at its end"]
*/
with minutes as (
    select *, hour_of(minute) as hour from queue_minutes where date between :since and :until
),
span as (
    select
        greatest((select min(minute) from queue_minutes), start_of(:since)) as began,
        least((select max(last_time) from watermark), start_of(:until + 1)) as ended
),
covered as (
    select *, hour_of(ended) as last_hour from span
),
grid as (
    select queue, explode(sequence(first_hour, last_hour, interval '1' hour)) as hour
    from (select queue, min(hour) as first_hour from minutes group by queue) cross join covered
),
sums as (
    select
        queue, hour,
        cast(sum(arrivals) as bigint) as arrivals,
        cast(sum(finishes) as bigint) as finishes,
        cast(sum(failures) as bigint) as failures,
        cast(sum(retries) as bigint) as retries,
        max_by(depth, minute) as depth
    from minutes
    group by queue, hour
),
filled as (
    select
        g.queue, g.hour, s.arrivals, s.finishes, s.failures, s.retries, s.depth,
        -- Hours in which nothing happened keep the depth of the one before them.
        count(s.depth) over (partition by g.queue order by g.hour) as level
    from grid g left join sums s on g.queue = s.queue and g.hour = s.hour
)
select
    queue, hour,
    least(hour + interval '1' hour, ended) as ended,
    seconds_between(greatest(hour, began), least(hour + interval '1' hour, ended)) as seconds,
    coalesce(arrivals, 0) as arrivals,
    coalesce(finishes, 0) as finishes,
    coalesce(failures, 0) as failures,
    coalesce(retries, 0) as retries,
    max(depth) over (partition by queue, level) as depth
from filled cross join covered
where hour < ended or arrivals is not null -- or the last record is of the first moment
