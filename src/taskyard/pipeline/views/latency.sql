/*
title = "Wait and run times"
about = "How long jobs waited for a worker and ran: exact percentiles over all starts, and over all attempts that ended, of each group."
uses = ["starts"]
[parameters.by]
default = "queue,name,hour"
choices = ["queue", "name", "hour"]
about = "what to group by: each percentile is of all rows of its group"
[columns]
queue = ["", "the queue, unless all are taken together"]
name = ["", "what was run, unless all are taken together"]
hour = ["", "in which attempts started (waits) or ended (runs)"]
waits = ["attempts", "how many started, of which the wait is known"]
wait_p50 = ["s", "half of them waited at most so long"]
wait_p95 = ["s", ""]
wait_p99 = ["s", ""]
wait_max = ["s", "the longest wait"]
runs = ["attempts", "how many ended"]
run_p50 = ["s", "half of them ran at most so long"]
run_p95 = ["s", ""]
run_p99 = ["s", ""]
run_max = ["s", "the longest run"]
[plot]
kind = "line"
x = "hour"
y = "wait_p95"
series = "queue"
parameters = {by = "queue,hour"}
*/
with times as (
    select
        queue, name, hour_of(started_at) as hour, wait_seconds, cast(null as double) as run_seconds
    from starts
    where wait_seconds is not null and day_of(started_at) <= :until
    union all
    select queue, name, hour_of(ended_at), cast(null as double), run_seconds
    from attempts
    where date between :since and :until
),
grouped as (
    select
        case when :by like '%queue%' then queue end as queue,
        case when :by like '%name%' then name end as name,
        case when :by like '%hour%' then hour end as hour,
        wait_seconds, run_seconds
    from times
)
select
    queue, name, hour,
    count(wait_seconds) as waits,
    percentile_cont(0.50) within group (order by wait_seconds) as wait_p50,
    percentile_cont(0.95) within group (order by wait_seconds) as wait_p95,
    percentile_cont(0.99) within group (order by wait_seconds) as wait_p99,
    max(wait_seconds) as wait_max,
    count(run_seconds) as runs,
    percentile_cont(0.50) within group (order by run_seconds) as run_p50,
    percentile_cont(0.95) within group (order by run_seconds) as run_p95,
    percentile_cont(0.99) within group (order by run_seconds) as run_p99,
    max(run_seconds) as run_max
from grouped
group by queue, name, hour
order by queue, name, hour
