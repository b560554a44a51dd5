-- jobs, attempts and queue_minutes from the files of `events`, as DuckDB computes them in one go.
-- It knows the rules that the measured journals need: push, wake, lease, retry, release, fail,
-- finish, remove of a leased job; no blocked jobs, no moves and no second runs.
-- Joins of a job's push, its end and its sums are quicker than one wide aggregation.

create or replace table job_events as
select seq, time, event, job_id, uid, queue, name, dialect, "user", holder, attempt, priority,
       content, payload_size, result_size, error, reason, run_at,
       case when event in ('wake', 'release') then time
            when event in ('push', 'retry') and (run_at is null or run_at <= time) then time
       end as ready_time
from read_parquet(getvariable('files'), hive_partitioning = true)
where event in ('push', 'wake', 'lease', 'retry', 'release', 'fail', 'finish')
   or (event = 'remove' and not ended);

create or replace table steps as
select job_id, seq, time, event, queue, holder, attempt, result_size, reason, error, ready_time,
       lag(event) over jobs as event_before,
       lag(time) over jobs as time_before,
       lag(holder) over jobs as holder_before,
       lag("user") over jobs as user_before,
       lag(dialect) over jobs as dialect_before,
       lag(attempt) over jobs as attempt_before,
       last_value(ready_time ignore nulls) over (
           partition by job_id order by seq
           rows between unbounded preceding and 1 preceding) as ready_before
from job_events
window jobs as (partition by job_id order by seq);

copy (
    select job_id, 1 as run, attempt_before as attempt, steps.queue, pushes.name,
           holder_before as worker, user_before as "user", dialect_before as dialect,
           ready_before as ready_at, time_before as started_at, time as ended_at,
           epoch_us(time_before - ready_before) / 1e6 as wait_seconds,
           epoch_us(time - time_before) / 1e6 as run_seconds,
           case event when 'finish' then 'succeeded' when 'retry' then 'retried'
                when 'fail' then 'failed' when 'release' then 'released' else 'removed' end as outcome,
           reason, error, regexp_extract(error, '^([A-Za-z_][A-Za-z0-9_.]*):', 1) as error_class,
           seq, time::date as date
    from steps join (select job_id, name from job_events where event = 'push') pushes using (job_id)
    where event_before = 'lease' and event in ('finish', 'retry', 'fail', 'release', 'remove')
) to 'OUT/attempts' (format parquet, compression zstd, compression_level 1, partition_by (date));

copy (
    with pushes as (select * from job_events where event = 'push'),
    ends as (
        select *, if(event = 'fail', error, null) as last_error
        from steps where event in ('finish', 'fail', 'remove')
    ),
    sums as (
        select job_id, min(ready_time) as ready_at,
               min(time) filter (event = 'lease') as started_at,
               max(time) filter (event = 'lease') as last_started_at,
               sum(epoch_us(time - time_before)) filter (event_before = 'lease') / 1e6 as run_seconds,
               max(attempt) filter (event = 'lease') as attempts,
               count(*) filter (event = 'retry') as retries,
               count(*) filter (event = 'release') as releases
        from steps group by job_id
    )
    select job_id, 1 as run, pushes.uid, ends.queue, pushes.queue as first_queue, pushes.name,
           pushes.dialect as dialect_in, ends.dialect_before as dialect_out, pushes."user",
           pushes.priority, pushes.content, pushes.payload_size, ends.result_size,
           pushes.time as pushed_at, pushes.run_at, ready_at, started_at, last_started_at,
           ends.time as finished_at,
           epoch_us(started_at - ready_at) / 1e6 as wait_seconds, run_seconds,
           epoch_us(ends.time - pushes.time) / 1e6 as total_seconds,
           attempts, retries, releases,
           case ends.event when 'finish' then 'succeeded' when 'fail' then 'failed'
                else ends.reason end as outcome,
           if(ends.event = 'finish', ends.reason, null) as way,
           if(ends.event = 'finish', null, ends.reason) as reason,
           last_error as error,
           regexp_extract(last_error, '^([A-Za-z_][A-Za-z0-9_.]*):', 1) as error_class,
           null::bigint[] as blocked_by, ends.seq, ends.time::date as date
    from ends join pushes using (job_id) join sums using (job_id)
) to 'OUT/jobs' (format parquet, compression zstd, compression_level 1, partition_by (date));

copy (
    with minutes as (
        select queue, date_trunc('minute', time) as minute,
               count(*) filter (event = 'push') as arrivals,
               count(*) filter (event = 'lease') as starts,
               count(*) filter (event = 'finish') as finishes,
               count(*) filter (event = 'fail') as failures,
               count(*) filter (event = 'retry') as retries,
               count(*) filter (event = 'release') as releases,
               count(*) filter (event = 'remove') as removals,
               count(*) filter (event in ('push', 'retry', 'release'))
                   - count(*) filter (event = 'lease') as depth_change,
               count(*) filter (event = 'lease')
                   - count(*) filter (event_before = 'lease') as flight_change,
               quantile_cont(epoch_us(time - ready_before) / 1e6, [0.5, 0.95, 0.99])
                   filter (event = 'lease') as waits,
               quantile_cont(epoch_us(time - time_before) / 1e6, [0.5, 0.95, 0.99])
                   filter (event_before = 'lease') as runs,
               count(distinct case when event = 'lease' then holder
                                   when event_before = 'lease' then holder_before end) as workers
        from steps group by all
    )
    select queue, minute, arrivals, starts, finishes, failures, retries, releases, removals,
           sum(depth_change) over levels as depth, sum(flight_change) over levels as in_flight,
           waits[1] as wait_p50, waits[2] as wait_p95, waits[3] as wait_p99,
           runs[1] as run_p50, runs[2] as run_p95, runs[3] as run_p99, workers,
           minute::date as date
    from minutes
    window levels as (partition by queue order by minute)
) to 'OUT/queue_minutes' (format parquet, compression zstd, compression_level 1, partition_by (date));
