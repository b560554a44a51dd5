-- jobs, attempts and queue_minutes from the files of `events`, as DuckDB computes them in one go.
-- It knows the rules that the measured journals need: push, wake, lease, retry, release, fail,
-- finish, remove; no blocked jobs, no moves and no second runs.

create or replace table steps as
with job_events as (
    select seq, part, time, event, job_id, uid, queue, name, dialect, "user", holder, attempt,
           priority, content, payload_size, result_size, error, reason, run_at,
           case when event in ('wake', 'release') then time
                when event in ('push', 'retry') and (run_at is null or run_at <= time) then time
           end as ready_time
    from read_parquet(getvariable('files'), hive_partitioning = true)
    where event in ('push', 'wake', 'lease', 'retry', 'release', 'fail', 'finish', 'remove')
)
select *,
       lag(event) over jobs as event_before,
       lag(time) over jobs as time_before,
       lag(holder) over jobs as holder_before,
       lag("user") over jobs as user_before,
       lag(dialect) over jobs as dialect_before,
       lag(attempt) over jobs as attempt_before,
       last_value(ready_time ignore nulls) over (
           partition by job_id order by seq, part
           rows between unbounded preceding and 1 preceding) as ready_before,
       first_value(name) over jobs as job_name
from job_events
window jobs as (partition by job_id order by seq, part);

copy (
    select job_id, attempt_before as attempt, queue, job_name as name, holder_before as worker,
           user_before as "user", dialect_before as dialect, ready_before as ready_at,
           time_before as started_at, time as ended_at,
           epoch_us(time_before - ready_before) / 1e6 as wait_seconds,
           epoch_us(time - time_before) / 1e6 as run_seconds,
           case event when 'finish' then 'succeeded' when 'retry' then 'retried'
                when 'fail' then 'failed' when 'release' then 'released' else 'removed' end as outcome,
           reason, error, regexp_extract(error, '^([A-Za-z_][A-Za-z0-9_.]*):', 1) as error_class,
           seq, time::date as date
    from steps
    where event_before = 'lease' and event in ('finish', 'retry', 'fail', 'release', 'remove')
) to 'OUT/attempts' (format parquet, compression zstd, partition_by (date));

copy (
    select job_id, any_value(uid) filter (event = 'push') as uid,
           arg_max(queue, seq) as queue, arg_min(queue, seq) as first_queue,
           any_value(name) filter (event = 'push') as name,
           any_value(dialect) filter (event = 'push') as dialect_in,
           arg_max(dialect, seq) filter (event = 'lease') as dialect_out,
           any_value("user") filter (event = 'push') as "user",
           any_value(priority) filter (event = 'push') as priority,
           any_value(content) filter (event = 'push') as content,
           any_value(payload_size) filter (event = 'push') as payload_size,
           any_value(result_size) filter (event = 'finish') as result_size,
           min(time) filter (event = 'push') as pushed_at,
           min(run_at) filter (event = 'push') as run_at,
           min(ready_time) as ready_at,
           min(time) filter (event = 'lease') as started_at,
           max(time) filter (event = 'lease') as last_started_at,
           max(time) as finished_at,
           epoch_us(min(time) filter (event = 'lease') - min(ready_time)) / 1e6 as wait_seconds,
           sum(epoch_us(time - time_before)) filter (event_before = 'lease') / 1e6 as run_seconds,
           epoch_us(max(time) - min(time)) / 1e6 as total_seconds,
           max(attempt) filter (event = 'lease') as attempts,
           count(*) filter (event = 'retry') as retries,
           count(*) filter (event = 'release') as releases,
           arg_max(event, seq) as outcome, arg_max(reason, seq) as reason,
           arg_max(error, seq) filter (event = 'fail') as error,
           max(seq) as seq, max(time)::date as date
    from steps group by job_id
    having bool_or(event in ('finish', 'fail', 'remove'))
) to 'OUT/jobs' (format parquet, compression zstd, partition_by (date));

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
               count(distinct holder) filter (event in ('lease', 'finish')) as workers
        from steps group by all
    )
    select queue, minute, arrivals, starts, finishes, failures, retries, releases, removals,
           sum(depth_change) over levels as depth, sum(flight_change) over levels as in_flight,
           waits[1] as wait_p50, waits[2] as wait_p95, waits[3] as wait_p99,
           runs[1] as run_p50, runs[2] as run_p95, runs[3] as run_p99, workers,
           minute::date as date
    from minutes
    window levels as (partition by queue order by minute)
) to 'OUT/queue_minutes' (format parquet, compression zstd, partition_by (date));
