/*
title = "Errors that look alike"
about = "Attempts that failed, grouped by the line of their error that says what it was, without the ids, numbers and quoted texts in it."
[columns]
queue = ["", ""]
name = ["", "what was run"]
message = ["", "the last exception of a traceback, else the first line; or the reason"]
attempts = ["attempts", "how many failed so"]
final = ["attempts", "how many of them for good"]
jobs = ["jobs", "how many different ones"]
workers = ["workers", "how many different ones had them"]
share = ["share", "of all attempts that failed"]
run_seconds = ["s", "that these attempts took"]
first_seen = ["", ""]
last_seen = ["", ""]
sample_job = ["", "the last job of them"]
[plot]
kind = "table"
*/
with failed as (
    select
        queue, name, job_id, worker, outcome, run_seconds, ended_at,
        coalesce(nullif(error, ''), reason, '') as text
    from attempts
    where outcome in ('retried', 'failed') and date between :since and :until
),
lines as (
    select
        *,
        coalesce(
            nullif(regexp_extract(
                case when text like '%Traceback%' then text else '' end,
                '(?s)^.*\n  File "[^\n]*\n(?:[ \t][^\n]*\n|\n)*([^ \t\n][^\n]*)', 1
            ), ''),
            regexp_extract(text, '^[ \t\r\n]*([^\r\n]*)', 1)
        ) as line
    from failed
),
clean as (
    select
        *,
        substring(
            replace_all(replace_all(replace_all(replace_all(replace_all(replace_all(
                trim(line),
                '[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}', '<uuid>'),
                '0x[0-9a-fA-F]+', '<hex>'),
                '[0-9a-fA-F]{8,}', '<hex>'),
                '[0-9]+', '<n>'),
                '"[^"]*"', '<text>'),
                '[ =(,]+[''][^'']*['']', ' <text>'),
            1, 200
        ) as message
    from lines
)
select
    queue, name, message,
    count(*) as attempts,
    count(case when outcome = 'failed' then 1 end) as final,
    count(distinct job_id) as jobs,
    count(distinct worker) as workers,
    count(*) / sum(count(*)) over () as share,
    sum(run_seconds) as run_seconds,
    min(ended_at) as first_seen,
    max(ended_at) as last_seen,
    max(job_id) as sample_job
from clean
group by queue, name, message
order by attempts desc, queue, name, message
