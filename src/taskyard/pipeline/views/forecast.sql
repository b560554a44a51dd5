/*
title = "Forecast"
about = "Arrivals and depth of the hours to come, by the one of four simple methods that was best for the last hours, which were held back to see."
uses = ["hours"]
[parameters.horizon]
default = 24
about = "how many hours to look ahead"
[parameters.hold]
default = 24
about = "how many of the last hours are held back"
[parameters.days]
default = 28
about = "how many days before are looked at"
[columns]
queue = ["", ""]
what = ["", "arrivals (in the hour) or depth (at its end)"]
part = ["", "held back (to measure the error) or next"]
hour = ["", ""]
method = ["", "last: the last hour's; day before: the same hour's of the last day; mean: of the same hour of all days; shifted: the mean, and how much higher the last day was"]
forecast = ["jobs", ""]
low = ["jobs", "the forecast less 1.645 times the root of the mean squared error: nine of ten hours are between low and high if the errors are normal"]
high = ["jobs", "the forecast and as much"]
actual = ["jobs", "of held back hours: what came"]
error = ["jobs", "mean absolute error of the method over the held back hours"]
naive_error = ["jobs", "the same of `day before`, to compare with"]
[plot]
kind = "line"
x = "hour"
y = "forecast"
series = "queue"
facet = "what"
*/
with full_hours as (
    select queue, hour, arrivals, depth from hours where seconds = 3600
),
amounts as (
    select
        queue, hour, what, case when what = 1 then arrivals else depth end * 1e0 as value
    from (select *, explode(sequence(1, 2, 1)) as what from full_hours)
),
ends as (
    select max(hour) + interval '1' hour as ended from full_hours
),
origins as (
    select 'next' as part, ended as origin, :horizon as steps from ends
    union all
    select 'held back', ended - :hold * interval '1' hour, :hold from ends
),
grid as (
    select
        queue, part, origin,
        explode(sequence(origin, origin + (steps - 1) * interval '1' hour, interval '1' hour))
            as hour
    from (select distinct queue from full_hours) cross join origins
    where steps > 0
),
pairs as (
    select
        g.queue, a.what, g.part, g.origin, g.hour, a.value,
        case when a.hour < g.origin then a.value end as known,
        hour_of_day(a.hour) = hour_of_day(g.hour) as is_same,
        seconds_between(a.hour, g.origin) / 3600 as age,
        a.hour = g.hour as is_it
    from grid g join amounts a on g.queue = a.queue
    where a.hour >= g.origin - :days * interval '24' hour and (a.hour < g.origin or a.hour = g.hour)
),
-- What was known before the first of the hours, and what of it says something of this one.
facts as (
    select
        queue, what, part, hour,
        max(case when is_it then value end) as actual,
        max(case when age = 1 then known end) as last,
        max(case when is_same and age <= 24 then known end) as day_before,
        avg(case when is_same then known end) as mean,
        avg(case when age <= 24 then known end) - avg(known) as shift
    from pairs
    group by queue, what, part, hour
),
forecasts as (
    select
        queue, what, part, hour, actual, method,
        case
            when method = 1 and mean is not null then mean
            when method = 2 and mean is not null then greatest(mean + shift, 0e0)
            when method = 3 and day_before is not null then day_before
            else last
        end as forecast
    from (select *, explode(sequence(1, 4, 1)) as method from facts)
),
measured as (
    select
        *,
        avg(abs(forecast - actual)) over (partition by queue, what, method) as error,
        sqrt(avg((forecast - actual) * (forecast - actual)) over (partition by queue, what, method))
            as square_error
    from forecasts
),
compared as (
    select
        *,
        max(case when method = 3 then error end) over (partition by queue, what) as naive_error,
        first_value(method) over (
            partition by queue, what order by error is null, round(error, 6), method
        ) as best
    from measured
)
select
    queue,
    case when what = 1 then 'arrivals' else 'depth' end as what,
    part, hour,
    case method when 1 then 'mean' when 2 then 'shifted' when 3 then 'day before' else 'last' end
        as method,
    forecast,
    greatest(forecast - 1.645e0 * square_error, 0e0) as low,
    forecast + 1.645e0 * square_error as high,
    actual, error, naive_error
from compared
where method = best and forecast is not null -- not before there was anything to know
order by queue, what, hour
