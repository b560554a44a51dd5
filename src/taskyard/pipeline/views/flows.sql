/*
title = "Flows between queues"
about = "How jobs get from one queue to another: moved by hand, to a dead queue, replayed from the lake, or pushed to wait for a job of another queue."
[columns]
way = ["", "moved, dead, replayed, or blocked (jobs of to_queue waited for those of from_queue)"]
from_queue = ["", "of a blocker: where it was pushed"]
to_queue = ["", ""]
times = ["", "how often"]
jobs = ["jobs", "how many different ones; of blocked, those that waited"]
first_seen = ["", ""]
last_seen = ["", ""]
[plot]
kind = "bar"
x = "from_queue"
y = "times"
series = "way"
*/
with pushed as (
    select job_id, first_queue, pushed_at, blocked_by from jobs where run = 1
    union all
    select job_id, first_queue, pushed_at, blocked_by
    from open_jobs
    where run = 1 and state <> 'failed' -- a dead letter has a row in jobs
),
blockers as (
    select
        job_id, first_queue as to_queue, pushed_at, explode(blocked_by) as blocker
    from pushed
),
steps as (
    select
        case when event = 'move' then 'moved' else 'dead' end as way,
        queue as from_queue, to_queue, job_id, time
    from events
    where event in ('move', 'fail') and to_queue is not null and date between :since and :until
    union all
    select 'blocked', p.first_queue, b.to_queue, b.job_id, b.pushed_at
    from blockers b left join pushed p on b.blocker = p.job_id
    where day_of(b.pushed_at) between :since and :until
    union all
    select 'replayed', from_queue, to_queue, job_id, replayed_at
    from replays
    where day_of(replayed_at) between :since and :until
)
select
    way, from_queue, to_queue,
    count(*) as times,
    count(distinct job_id) as jobs,
    min(time) as first_seen,
    max(time) as last_seen
from steps
group by way, from_queue, to_queue
order by times desc, way, from_queue, to_queue
