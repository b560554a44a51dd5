/*
title = "Starts"
about = "Each start of a job, ended or not: the rows that waits and loads are computed from."
[columns]
job_id = ["", "the job"]
queue = ["", "where it was started"]
name = ["", "what was run"]
worker = ["", "who ran it"]
ready_at = ["", "since when it could have been started"]
started_at = ["", "when it was"]
ended_at = ["", "when that attempt ended; null: it has not"]
wait_seconds = ["s", "from ready to started"]
run_seconds = ["s", "from started to ended"]
*/
select job_id, queue, name, worker, ready_at, started_at, ended_at, wait_seconds, run_seconds
from attempts
where date >= :since and day_of(started_at) >= :since
union all
select
    job_id, queue, name, worker, waited_from, last_started_at, cast(null as timestamp),
    seconds_between(waited_from, last_started_at), cast(null as double)
from open_jobs
where state = 'leased' and day_of(last_started_at) >= :since
