/*
title = "How many workers"
about = "How long jobs would wait in each queue's busiest hour with so many workers, by the Erlang C formula."
uses = ["capacity"]
[parameters.target]
default = 60.0
about = "how many seconds a job may wait"
[parameters.goal]
default = 0.95
about = "which share is to be started within it"
[columns]
queue = ["", ""]
hour = ["", "its busiest: the full hour that brought the most work; another if there is none"]
offered = ["workers", "start rate * mean run in that hour"]
workers = ["workers", "with so many, each of which runs one job at a time"]
utilisation = ["share", "offered / workers"]
wait_share = ["share", "which share of the jobs would wait at all"]
wait_mean = ["s", "how long a job would wait"]
wait_p95 = ["s", ""]
within = ["share", "which share would be started within the target"]
enough = ["", "whether that is the goal or more"]
[plot]
kind = "line"
x = "workers"
y = "within"
series = "queue"
*/
-- Of n workers, with a load of a erlangs and runs of s seconds on average:
--   P(wait) = top / (top + sum of a^k / k! for k < n),  top = a^n / n! * n / (n - a)
--   mean wait = P(wait) * s / (n - a),  P(wait > t) = P(wait) * exp(-(n - a) * t / s)
-- All terms are multiplied with exp(-a), which keeps them small.
with ranked as (
    select
        queue, hour, offered, run_mean,
        -- Rates of a few seconds say little: an hour that the lake has seen in part comes last.
        row_number() over (
            partition by queue order by seconds < 3600, offered desc, hour
        ) as place
    from capacity
    where offered > 0
),
counts as (
    select
        queue, hour, offered, run_mean,
        explode(sequence(0, cast(ceil(offered + 4 * sqrt(offered) + 4) as int), 1)) as n
    from ranked
    where place = 1
),
terms as (
    select
        *,
        exp(
            n * ln(offered) - offered - sum(ln(greatest(n, 1))) over (partition by queue order by n)
        ) as term
    from counts
),
sums as (
    select
        *,
        term * n / nullif(n - offered, 0) as top,
        sum(term) over (
            partition by queue order by n rows between unbounded preceding and 1 preceding
        ) as below
    from terms
),
waits as (
    select *, top / (top + below) as wait_share, run_mean / (n - offered) as drain_seconds
    from sums
    where n > offered
)
select
    queue, hour, offered, cast(n as bigint) as workers,
    offered / n as utilisation,
    wait_share,
    wait_share * drain_seconds as wait_mean,
    drain_seconds * ln(greatest(wait_share / 0.05e0, 1e0)) as wait_p95,
    1 - wait_share * exp(-:target / drain_seconds) as within,
    1 - wait_share * exp(-:target / drain_seconds) >= :goal as enough
from waits
order by queue, n
