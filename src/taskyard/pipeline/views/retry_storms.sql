/*
title = "Retry storms"
about = "Times in which far more attempts of a queue and name ended in a retry than in its usual minute, which is the median of the minutes in which attempts of it ended."
[parameters.factor]
default = 5.0
about = "how many times the usual number of retries a minute of a storm has, at least"
[parameters.least]
default = 10
about = "how many retries it has, at least"
[columns]
queue = ["", ""]
name = ["", "what was run"]
began = ["", "its first minute"]
ended = ["", "the end of its last; a calm minute in between is part of the storm"]
retries = ["attempts", "in its minutes"]
attempts = ["attempts", "that ended in its minutes"]
peak = ["1/min", "most retries in a minute"]
usual = ["1/min", "retries in the usual minute"]
lost_seconds = ["s", "run seconds of the attempts that were retried"]
error_class = ["", "the one that most of the retries had"]
[plot]
kind = "bar"
x = "began"
y = "retries"
series = "queue"
*/
with ends as (
    select
        queue, name, minute_of(ended_at) as minute, error_class, run_seconds,
        case when outcome = 'retried' then 1 else 0 end as retried
    from attempts
    where date between :since and :until
),
minutes as (
    select
        queue, name, minute, count(*) as attempts, sum(retried) as retries,
        sum(retried * run_seconds) as lost_seconds
    from ends
    group by queue, name, minute
),
compared as (
    select *, median(retries) over (partition by queue, name) as usual from minutes
),
stormy as (
    select
        *,
        lag(minute) over (partition by queue, name order by minute) as before
    from compared
    where retries >= :least and retries >= :factor * greatest(usual, 1)
),
numbered as (
    select
        *,
        sum(case when seconds_between(before, minute) <= 120 then 0 else 1 end)
            over (partition by queue, name order by minute) as storm
    from stormy
),
classes as (
    select
        n.queue, n.name, n.storm, e.error_class,
        row_number() over (
            partition by n.queue, n.name, n.storm order by count(*) desc, e.error_class
        ) as place
    from numbered n join ends e
        on n.queue = e.queue and n.name is not distinct from e.name and n.minute = e.minute
    where e.retried = 1
    group by n.queue, n.name, n.storm, e.error_class
),
storms as (
    select
        queue, name, storm,
        min(minute) as began,
        max(minute) + interval '1' minute as ended,
        cast(sum(retries) as bigint) as retries,
        cast(sum(attempts) as bigint) as attempts,
        cast(max(retries) as bigint) as peak,
        max(usual) as usual,
        sum(lost_seconds) as lost_seconds
    from numbered
    group by queue, name, storm
)
select
    s.queue, s.name, s.began, s.ended, s.retries, s.attempts, s.peak, s.usual, s.lost_seconds,
    c.error_class
from storms s join classes c
    on s.queue = c.queue and s.name is not distinct from c.name and s.storm = c.storm
where c.place = 1
order by s.began, s.queue, s.name
