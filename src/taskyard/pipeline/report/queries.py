"""The questions that a report asks of the lake, in SQL.

They are asked of views over its tables (report_data.py) that hold only what is in the report's
span and queues: `label` is the queue, or null for all that have no line of their own, `bin` the
number of a piece of time.
"""

from typing import Final

_PERCENTILES: Final = """
    percentile_approx(wait_seconds, array(0.5, 0.95, 0.99), 10000) AS wait,
    percentile_approx(run_seconds, array(0.5, 0.95, 0.99), 10000) AS run
"""
_BAD: Final = "outcome IN ('retried', 'failed')"

QUEUES: Final = """
    WITH seen AS (
        SELECT queue, arrivals, starts, finishes, failures, retries, depth, 0 AS waits
        FROM r_minutes
        UNION ALL SELECT queue, 0, 0, 0, 0, 0, 0, 0 FROM r_jobs
        UNION ALL SELECT queue, 0, 0, 0, 0, 0, 0,
            if(state IN ('blocked', 'delayed', 'ready'), 1, 0) FROM r_open
    ), sums AS (
        SELECT queue, sum(arrivals) AS arrivals, sum(starts) AS starts,
            sum(finishes) AS finishes, sum(failures) AS failures, sum(retries) AS retries,
            max(depth) AS peak, sum(waits) AS waiting
        FROM seen GROUP BY queue
    )
    SELECT * FROM sums
    ORDER BY arrivals + starts + failures DESC, waiting DESC, queue
    LIMIT :limit
"""

QUEUE_COUNT: Final = """
    SELECT count(*) AS queues FROM (
        SELECT queue FROM r_minutes UNION SELECT queue FROM r_jobs UNION SELECT queue FROM r_open
    )
"""

TOTALS: Final = """
    SELECT coalesce(sum(arrivals), 0) AS arrivals, coalesce(sum(starts), 0) AS starts,
        coalesce(sum(finishes), 0) AS finishes, coalesce(sum(failures), 0) AS failures,
        coalesce(sum(retries), 0) AS retries, coalesce(sum(releases), 0) AS releases
    FROM r_minutes
"""

FLOWS: Final = """
    SELECT label, bin, sum(arrivals) AS arrivals, sum(starts) AS starts,
        sum(finishes) AS finishes, sum(failures) AS failures, sum(retries) AS retries
    FROM r_minutes GROUP BY label, bin
"""

# How full the queues were: by how much the level changed in a bin, and how far it had been above
# what it was at the end. Bin -1 is all that was before. A queue that is quiet keeps its level.
DEPTH: Final = """
    WITH ends AS (
        SELECT queue, label, bin, max_by(depth, minute) AS level, max(depth) AS peak
        FROM r_levels GROUP BY queue, label, bin
    ), changes AS (
        SELECT label, bin, level, peak,
            coalesce(lag(level) OVER (PARTITION BY queue ORDER BY bin), 0) AS before
        FROM ends
    )
    SELECT label, bin, sum(level - before) AS change,
        sum(greatest(peak, before) - level) AS above
    FROM changes GROUP BY label, bin
"""

LATENCY: Final = f"""
    SELECT label, bin, grouping_id(label, bin) AS over, count(*) AS attempts,
        count_if({_BAD}) AS failed, {_PERCENTILES}
    FROM r_attempts
    GROUP BY GROUPING SETS ((label, bin), (label), (bin), ())
"""

# With few starts one late job would make a queue the worst.
WORST: Final = """
    SELECT queue, count(wait_seconds) AS starts,
        percentile_approx(wait_seconds, 0.95, 10000) AS p95
    FROM r_attempts WHERE wait_seconds IS NOT NULL
    GROUP BY queue
    ORDER BY starts >= :enough DESC, p95 DESC, queue LIMIT 1
"""

OUTCOMES: Final = "SELECT outcome, count(*) AS jobs FROM r_jobs GROUP BY outcome"

REASONS: Final = """
    SELECT coalesce(reason, 'no reason given') AS why, count(*) AS jobs,
        count(dead.job_id) AS still
    FROM r_jobs LEFT JOIN (SELECT job_id, run FROM r_open WHERE state = 'failed') AS dead
        USING (job_id, run)
    WHERE outcome = 'failed'
    GROUP BY 1 ORDER BY jobs DESC, why LIMIT 20
"""

OPEN: Final = """
    SELECT coalesce(state, 'unknown') AS state, count(*) AS jobs FROM r_open GROUP BY 1
"""

_NAMES: Final = f"""
    SELECT name, count(*) AS attempts, count_if({_BAD}) AS failed,
        count_if(outcome = 'failed') AS final, sum(run_seconds) AS busy, {_PERCENTILES}
    FROM r_attempts GROUP BY name
"""
SLOWEST: Final = f"SELECT * FROM ({_NAMES}) ORDER BY run[1] DESC NULLS LAST, name LIMIT :limit"
FAILING: Final = f"""
    SELECT * FROM ({_NAMES}) WHERE failed > 0
    ORDER BY failed DESC, failed / attempts DESC, name LIMIT :limit
"""

# Far more retries than the queue has on average, and many for what is started.
STORMS: Final = """
    WITH bins AS (
        SELECT queue, bin, sum(retries) AS retries, sum(starts) AS starts
        FROM r_minutes GROUP BY queue, bin
    ), beside AS (
        SELECT *, sum(retries) OVER (PARTITION BY queue) / :bins AS mean FROM bins
    )
    SELECT queue, bin, retries, starts FROM beside
    WHERE retries >= 10 AND retries >= 2 * mean AND retries >= 0.3 * starts
    ORDER BY retries DESC LIMIT 1000
"""

# Each time that a queue's jobs wait though none of them ends, from the first minute in which some
# wait to the next in which one ends.
STOPS: Final = """
    WITH marked AS (
        SELECT queue, minute, depth,
            count_if(finishes + failures + retries > 0) OVER (
                PARTITION BY queue ORDER BY minute
            ) AS era
        FROM r_minutes
    ), eras AS (
        SELECT queue, era, min(minute) AS begin, min(minute) FILTER (WHERE depth > 0) AS waiting,
            max(depth) AS depth
        FROM marked GROUP BY queue, era
    ), stops AS (
        SELECT queue, era, depth,
            if(depth > 0, unix_seconds(greatest(waiting, begin + INTERVAL 1 MINUTE)), NULL)
                AS since,
            unix_seconds(lead(begin) OVER (PARTITION BY queue ORDER BY era)) AS until
        FROM eras
    )
    SELECT queue, depth, since, until FROM stops
    WHERE until - since >= :least AND era > 0
    ORDER BY depth * (until - since) DESC LIMIT 100
"""

STORM_ERRORS: Final = """
    SELECT queue, bin, error_class, count(*) AS retries FROM r_attempts
    WHERE outcome = 'retried' GROUP BY queue, bin, error_class
"""

GROUPS: Final = """
    SELECT queue, name, error_class, message, count, final,
        unix_micros(first_seen) AS first_seen, unix_micros(last_seen) AS last_seen, sample_jobs
    FROM r_failures ORDER BY count DESC, queue, name, message LIMIT :limit
"""

WORKERS: Final = f"""
    SELECT worker, count(*) AS attempts, count_if({_BAD}) AS failed, sum(run_seconds) AS busy,
        (unix_micros(max(ended_at)) - unix_micros(min(started_at))) / 1e6 AS seen
    FROM r_attempts WHERE worker IS NOT NULL
    GROUP BY worker ORDER BY busy DESC NULLS LAST, worker LIMIT :limit
"""

WORKER_COUNT: Final = "SELECT count(DISTINCT worker) AS workers FROM r_attempts"

BUSY: Final = """
    SELECT worker, bin, sum(greatest(0,
        least(unix_micros(ended_at), :first + (bin + 1) * :size)
        - greatest(unix_micros(started_at), :first + bin * :size))) / 1e6 AS busy
    FROM r_busy GROUP BY worker, bin
"""

TARGETS: Final = """
    SELECT target, bin, grouping_id(target, bin) AS over, count(*) AS starts,
        count_if(wait_seconds <= limit) AS within,
        percentile_approx(wait_seconds, 0.95, 10000) AS p95
    FROM r_targets WHERE target IS NOT NULL AND wait_seconds IS NOT NULL
    GROUP BY GROUPING SETS ((target, bin), (target))
"""

WEEK: Final = """
    SELECT weekday(minute) AS day, hour(minute) AS hour, sum(arrivals) AS arrivals
    FROM r_minutes GROUP BY 1, 2
"""
