/*
title = "Unusual hours"
about = "Hours whose arrivals, failures or median wait are far from those of the same hour of the days before: distance from their median, in robust standard deviations."
uses = ["hours", "starts"]
[parameters.days]
default = 28
about = "how many days before are looked at"
[parameters.least_days]
default = 3
about = "how many of them there must be"
[parameters.score]
default = 4.0
about = "how far away an unusual hour is, at least; 0 for all hours"
[columns]
queue = ["", ""]
hour = ["", ""]
what = ["", "arrivals, failures or wait"]
value = ["jobs or s", "how many there were, or the median wait"]
usual = ["jobs or s", "median of the same hour of the days before"]
spread = ["jobs or s", "1.4826 * median distance from it; at least its square root and 1, of waits a tenth of it and 0.1 s"]
score = ["", "(value - usual) / spread"]
days = ["days", "how many were looked at"]
[plot]
kind = "heat"
x = "hour"
y = "queue"
value = "score"
facet = "what"
parameters = {score = 0.0}
*/
with full_hours as (
    select queue, hour, arrivals, failures from hours where seconds = 3600
),
amounts as (
    select
        queue, hour,
        case what when 1 then 'arrivals' else 'failures' end as what,
        case what when 1 then arrivals else failures end * 1e0 as value
    from (select *, explode(sequence(1, 2, 1)) as what from full_hours)
    union all
    select h.queue, h.hour, 'wait', median(s.wait_seconds)
    from full_hours h join starts s on h.queue = s.queue and h.hour = hour_of(s.started_at)
    where s.wait_seconds is not null
    group by h.queue, h.hour
),
pairs as (
    select
        a.queue, a.hour, a.what, a.value, b.value as earlier,
        median(b.value) over (partition by a.queue, a.hour, a.what) as usual
    from amounts a join amounts b
        on a.queue = b.queue and a.what = b.what and hour_of_day(a.hour) = hour_of_day(b.hour)
    where b.hour < a.hour and b.hour >= a.hour - :days * interval '24' hour
),
spreads as (
    select
        queue, hour, what, value, usual, count(*) as days,
        1.4826e0 * median(abs(earlier - usual)) as spread
    from pairs
    group by queue, hour, what, value, usual
),
floored as (
    select
        queue, hour, what, value, usual, days,
        case
            when what = 'wait' then greatest(spread, 0.1e0 * usual, 0.1e0)
            else greatest(spread, sqrt(usual), 1e0)
        end as spread
    from spreads
    where days >= :least_days
)
select queue, hour, what, value, usual, spread, (value - usual) / spread as score, days
from floored
where abs(value - usual) / spread >= :score
order by hour, queue, what
