/*
title = "Load and capacity"
about = "How much work came and how busy the workers were, by queue and hour; by Little's law a rate times a mean time is how many are under way."
uses = ["hours", "starts"]
[columns]
queue = ["", ""]
hour = ["", ""]
seconds = ["s", "how much of the hour the lake has seen; rates are of that"]
arrivals = ["jobs", "pushed, or come from another queue"]
arrival_rate = ["1/s", ""]
starts = ["attempts", "started in the hour: retries are among them"]
start_rate = ["1/s", ""]
wait_mean = ["s", "of what started in the hour"]
run_mean = ["s", "of what started in the hour, and has ended"]
run_variation = ["", "standard deviation of the runs / their mean; 1 if they are exponential"]
waiting = ["jobs", "by Little's law: start_rate * wait_mean"]
offered = ["workers", "by Little's law: start_rate * run_mean, the work that the hour brought"]
concurrency = ["jobs", "measured: run seconds that lie in the hour / seconds"]
workers = ["workers", "how many different ones had a job in it"]
utilisation = ["share", "concurrency / workers; above 1 if workers run several jobs at a time"]
[plot]
kind = "heat"
x = "hour"
y = "queue"
value = "utilisation"
*/
with now as (
    select max(last_time) as moment from watermark
),
seen as (
    select *, nullif(seconds, 0) as length from hours
),
begun as (
    select
        queue, hour_of(started_at) as hour,
        count(*) as starts,
        avg(wait_seconds) as wait_mean,
        avg(run_seconds) as run_mean,
        stddev_pop(run_seconds) / nullif(avg(run_seconds), 0) as run_variation
    from starts
    group by queue, hour_of(started_at)
),
runs as (
    select
        queue, worker, started_at, coalesce(ended_at, moment) as ended_at,
        hour_of(started_at) as first_hour, hour_of(coalesce(ended_at, moment)) as last_hour
    from starts cross join now
),
pieces as (
    select *, explode(sequence(first_hour, last_hour, interval '1' hour)) as hour from runs
),
busy as (
    select
        p.queue, p.hour,
        sum(seconds_between(greatest(p.started_at, h.hour), least(p.ended_at, h.ended)))
            as busy_seconds,
        count(distinct p.worker) as workers
    from pieces p join seen h on p.queue = h.queue and p.hour = h.hour
    group by p.queue, p.hour
)
select
    h.queue, h.hour, h.seconds, h.arrivals,
    h.arrivals / h.length as arrival_rate,
    coalesce(b.starts, 0) as starts,
    coalesce(b.starts, 0) / h.length as start_rate,
    b.wait_mean, b.run_mean, b.run_variation,
    b.starts / h.length * b.wait_mean as waiting,
    b.starts / h.length * b.run_mean as offered,
    coalesce(w.busy_seconds, 0e0) / h.length as concurrency,
    coalesce(w.workers, 0) as workers,
    w.busy_seconds / h.length / nullif(w.workers, 0) as utilisation
from seen h
left join begun b on h.queue = b.queue and h.hour = b.hour
left join busy w on h.queue = w.queue and h.hour = w.hour
order by h.queue, h.hour
