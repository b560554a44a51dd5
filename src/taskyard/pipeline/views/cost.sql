/*
title = "Cost"
about = "How many seconds workers have spent on the jobs of each name and user, and which share of all that is."
[parameters.by]
default = "name,user"
choices = ["queue", "name", "user", "day"]
about = "what to group by"
[columns]
queue = ["", "where the job was last, unless all are taken together"]
name = ["", "what was run, unless all are taken together"]
user = ["", "who pushed it, unless all are taken together"]
day = ["", "on which it ended, or is still open; empty unless it is grouped by"]
jobs = ["jobs", "how many runs of jobs, closed or open"]
attempts = ["attempts", ""]
run_seconds = ["s", "sum of the attempts that have ended"]
share = ["share", "of all run seconds"]
run_mean = ["s", "run seconds / attempts"]
lost_seconds = ["s", "run seconds of jobs that did not succeed"]
[plot]
kind = "bar"
x = "name"
y = "run_seconds"
series = "user"
*/
with now as (
    select max(last_time) as moment from watermark
),
runs as (
    select queue, name, user as pusher, date as day, attempts, run_seconds, outcome
    from jobs
    where date between :since and :until
    union all
    -- The run of a dead letter has a row in jobs.
    select queue, name, user, day_of(moment), attempts, run_seconds, 'open'
    from open_jobs cross join now
    where state <> 'failed' and day_of(moment) between :since and :until
),
grouped as (
    select
        case when :by like '%queue%' then queue end as queue,
        case when :by like '%name%' then name end as name,
        case when :by like '%user%' then pusher end as pusher,
        case when :by like '%day%' then day end as day,
        attempts, run_seconds, outcome
    from runs
)
select
    queue, name, pusher as user, day,
    count(*) as jobs,
    cast(sum(attempts) as bigint) as attempts,
    sum(run_seconds) as run_seconds,
    sum(run_seconds) / nullif(sum(sum(run_seconds)) over (), 0) as share,
    sum(run_seconds) / nullif(sum(attempts), 0) as run_mean,
    sum(case when outcome in ('succeeded', 'open') then 0e0 else run_seconds end) as lost_seconds
from grouped
group by queue, name, pusher, day
order by run_seconds desc, queue, name, user, day
