/*
title = "Wait targets"
about = "Which share of the jobs that became ready on a day was started within the target, and how late the others were."
uses = ["starts"]
[parameters.target]
default = 60.0
about = "how many seconds a job may wait"
[parameters.goal]
default = 0.95
about = "which share is to be started within it"
[columns]
queue = ["", "where they waited"]
day = ["", "on which they became ready, in UTC"]
waits = ["attempts", "how often a job was started, or has waited for longer than the target without a start"]
within = ["attempts", "how many of them were started within the target"]
attainment = ["share", "within / waits"]
met = ["", "whether that is the goal or more"]
late = ["attempts", "how many were not"]
still_waiting = ["jobs", "how many of the late ones are not started yet"]
late_p50 = ["s", "how far beyond the target the late ones were started or removed, or are by now"]
late_p95 = ["s", ""]
late_max = ["s", ""]
[plot]
kind = "line"
x = "day"
y = "attainment"
series = "queue"
*/
with now as (
    select max(last_time) as moment from watermark
),
waits as (
    select queue, day_of(ready_at) as day, wait_seconds as seconds, 0 as still
    from starts
    where wait_seconds is not null and day_of(ready_at) between :since and :until
    union all
    select queue, day_of(ready_since), seconds_between(ready_since, moment), 1
    from open_jobs cross join now
    where state = 'ready' and seconds_between(ready_since, moment) > :target
      and day_of(ready_since) between :since and :until
    union all
    -- A job that was never started, and was late when it expired or was removed.
    select queue, day_of(ready_at), seconds_between(ready_at, finished_at), 0
    from jobs
    where started_at is null and seconds_between(ready_at, finished_at) > :target
      and day_of(ready_at) between :since and :until and date >= :since
),
compared as (
    select
        queue, day, still,
        case when seconds <= :target then 1 else 0 end as is_within,
        case when seconds > :target then seconds - :target end as late_seconds
    from waits
)
select
    queue, day,
    count(*) as waits,
    cast(sum(is_within) as bigint) as within,
    sum(is_within) / count(*) as attainment,
    sum(is_within) / count(*) >= :goal as met,
    count(late_seconds) as late,
    cast(sum(still) as bigint) as still_waiting,
    percentile_cont(0.50) within group (order by late_seconds) as late_p50,
    percentile_cont(0.95) within group (order by late_seconds) as late_p95,
    max(late_seconds) as late_max
from compared
group by queue, day
order by queue, day
