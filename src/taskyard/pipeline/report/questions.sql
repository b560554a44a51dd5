-- What a report asks of a lake. A line `-- :name` begins a question, or what is to be done before.
--
-- The questions are asked of views over the lake's tables that hold only what is in the report's
-- span and queues: `label` is the queue, or null for all that have no line of their own, `bin` the
-- number of a piece of time. What differs from report to report stands in variables of the
-- connection.

-- :macros
CREATE TEMP MACRO is_asked(queue) AS
    getvariable('pattern') IS NULL OR regexp_matches(queue, getvariable('pattern')::VARCHAR);
CREATE TEMP MACRO total(value) AS coalesce(sum(value), 0)::BIGINT;
CREATE TEMP MACRO how_often(condition) AS count_if(condition)::BIGINT;
CREATE TEMP MACRO is_waiting(state) AS state IN ('blocked', 'delayed', 'ready');
CREATE TEMP MACRO is_bad(outcome) AS outcome IN ('retried', 'failed');
CREATE TEMP MACRO percentiles(value) AS quantile_disc(value, [0.5, 0.95, 0.99]);

-- :extent
-- From the first to the last thing that is there.
SELECT min(least(first, last)) AS first, max(greatest(first, last)) AS last FROM (
    SELECT queue, minute AS first, minute AS last FROM queue_minutes
    UNION ALL SELECT queue, coalesce(started_at, ended_at), ended_at FROM attempts
    UNION ALL SELECT queue, coalesce(started_at, finished_at), finished_at FROM jobs
    UNION ALL SELECT queue, coalesce(began_at, last_time), last_time FROM open_jobs
) WHERE is_asked(queue);

-- :views
-- The date alone tells which files to leave out. Minutes count that overlap the span; jobs may wait
-- where nothing happened.
CREATE TEMP MACRO label_of(queue) AS
    CASE WHEN list_contains(getvariable('shown')::VARCHAR[], queue) THEN queue END;
CREATE TEMP MACRO bin_of(time) AS
    floor((epoch_us(time) - getvariable('first')) / getvariable('size'))::BIGINT;
CREATE TEMP MACRO is_within(date, time) AS
    date >= getvariable('since')::DATE AND date <= getvariable('until')::DATE
    AND time >= getvariable('since') AND time < getvariable('until');
CREATE TEMP VIEW r_levels AS
    SELECT *, label_of(queue) AS label, bin_of(minute) AS bin FROM queue_minutes
    WHERE is_asked(queue) AND minute < getvariable('until');
CREATE TEMP VIEW r_minutes AS SELECT * FROM r_levels
    WHERE date >= getvariable('since')::DATE
        AND minute >= date_trunc('minute', getvariable('since'));
CREATE TEMP VIEW r_jobs AS
    SELECT * FROM jobs WHERE is_asked(queue) AND is_within(date, finished_at);
CREATE TEMP VIEW r_open AS SELECT * FROM open_jobs WHERE is_asked(queue);
CREATE TEMP VIEW r_attempts AS
    SELECT *, label_of(queue) AS label, bin_of(ended_at) AS bin FROM attempts
    WHERE is_asked(queue) AND is_within(date, ended_at);
CREATE TEMP VIEW r_names AS
    SELECT name, count(*) AS attempts, how_often(is_bad(outcome)) AS failed,
        how_often(outcome = 'failed') AS final, sum(run_seconds) AS busy,
        percentiles(run_seconds) AS run
    FROM r_attempts GROUP BY name;
CREATE TEMP VIEW r_workers AS
    SELECT worker, count(*) AS attempts, how_often(is_bad(outcome)) AS failed,
        coalesce(sum(run_seconds), 0) AS busy,
        coalesce(busy / nullif(epoch(max(ended_at) - min(started_at)), 0), 0) AS utilisation
    FROM r_attempts WHERE worker IS NOT NULL
    GROUP BY worker ORDER BY busy DESC, worker LIMIT 15;
CREATE TEMP TABLE r_queues AS
    WITH seen AS (
        SELECT queue, arrivals, starts, finishes, failures, retries, depth, 0 AS waits
        FROM r_minutes
        UNION ALL SELECT queue, 0, 0, 0, 0, 0, 0, 0 FROM r_jobs
        UNION ALL SELECT queue, 0, 0, 0, 0, 0, 0, is_waiting(state)::INT FROM r_open
    ), sums AS (
        SELECT queue, total(arrivals) AS arrivals, total(starts) AS starts,
            total(finishes) AS finishes, total(failures) AS failures,
            total(retries) AS retries, max(depth) AS peak, total(waits) AS waiting
        FROM seen GROUP BY queue
    )
    SELECT *, row_number() OVER (
        ORDER BY arrivals + starts + failures DESC, waiting DESC, queue
    ) AS place
    FROM sums;

-- :queues
-- The busiest queues have a line each.
SELECT label_of(queue) AS label, count(*) AS queues, total(arrivals) AS arrivals,
    total(starts) AS starts, total(finishes) AS finishes, total(failures) AS failures,
    total(retries) AS retries, total(waiting) AS waiting,
    CASE WHEN label IS NOT NULL THEN max(peak) END AS peak
FROM r_queues GROUP BY label ORDER BY label IS NULL, min(place);

-- :flows
SELECT bin, total(arrivals) AS arrivals, total(starts) AS starts, total(finishes) AS finishes,
    total(failures) AS failures, total(retries) AS retries
FROM r_minutes GROUP BY bin;

-- :retries
SELECT label, bin, total(retries) AS value FROM r_minutes GROUP BY label, bin;

-- :depth
-- How full the queues were: by how much the level changed in a bin, and how far it had been
-- above what it was at the end. Bin -1 is all that was before. A queue that is quiet keeps its
-- level.
WITH ends AS (
    SELECT queue, label, greatest(bin, -1) AS bin, max_by(depth, minute) AS level,
        max(depth) AS peak
    FROM r_levels GROUP BY ALL
), changes AS (
    SELECT label, bin, level, peak,
        coalesce(lag(level) OVER (PARTITION BY queue ORDER BY bin), 0) AS before
    FROM ends
)
SELECT label, bin, total(level - before) AS change,
    total(greatest(peak, before) - level) AS above
FROM changes GROUP BY label, bin;

-- :times
-- Not these four as one question with grouping sets, which takes twice the memory.
SELECT percentiles(wait_seconds) AS wait, percentiles(run_seconds) AS run FROM r_attempts;

-- :times_by_queue
SELECT label, percentiles(wait_seconds) AS wait, percentiles(run_seconds) AS run
FROM r_attempts GROUP BY label;

-- :times_by_bin
SELECT bin, percentiles(wait_seconds) AS wait, percentiles(run_seconds) AS run
FROM r_attempts GROUP BY bin;

-- :times_by_both
SELECT label, bin, percentiles(wait_seconds) AS wait, percentiles(run_seconds) AS run
FROM r_attempts GROUP BY label, bin;

-- :worst
-- With few starts one late job would make a queue the worst.
SELECT queue, count(wait_seconds) AS starts, quantile_disc(wait_seconds, 0.95) AS p95
FROM r_attempts WHERE wait_seconds IS NOT NULL
GROUP BY queue ORDER BY starts >= 20 DESC, p95 DESC, queue LIMIT 1;

-- :outcomes
SELECT outcome, count(*) AS jobs FROM r_jobs GROUP BY outcome;

-- :reasons
SELECT coalesce(reason, 'no reason given') AS why, count(*) AS jobs,
    count(dead.job_id) AS still
FROM r_jobs LEFT JOIN (SELECT job_id, run FROM r_open WHERE state = 'failed') AS dead
    USING (job_id, run)
WHERE outcome = 'failed' GROUP BY why ORDER BY jobs DESC, why LIMIT 20;

-- :open_states
SELECT coalesce(state, 'unknown') AS state, count(*) AS jobs FROM r_open GROUP BY ALL;

-- :slowest
SELECT * FROM r_names WHERE run IS NOT NULL ORDER BY run[2] DESC, name LIMIT 12;

-- :failing
SELECT * FROM r_names WHERE failed > 0
ORDER BY failed DESC, failed / attempts DESC, name LIMIT 12;

-- :storms
-- Far more retries than the queue has on average, and many for what is started; neighbouring
-- bins of one queue are one storm.
WITH bins AS (
    SELECT queue, bin, sum(retries) AS retries, sum(starts) AS starts,
        sum(sum(retries)) OVER (PARTITION BY queue) / getvariable('bins') AS mean
    FROM r_minutes GROUP BY queue, bin
), stormy AS (
    SELECT *, bin - row_number() OVER (PARTITION BY queue ORDER BY bin) AS island
    FROM bins WHERE retries >= 10 AND retries >= 2 * mean AND retries >= 0.3 * starts
), storms AS (
    SELECT queue, min(bin) AS first, max(bin) AS last, total(retries) AS retries,
        total(starts) AS starts
    FROM stormy GROUP BY queue, island ORDER BY retries DESC, queue, first LIMIT 12
)
SELECT *, (
    SELECT mode(error_class) FROM r_attempts AS attempts
    WHERE attempts.queue = storms.queue AND bin BETWEEN first AND last
        AND outcome = 'retried'
) AS error_class
FROM storms ORDER BY retries DESC, queue, first;

-- :stops
-- Each time that a queue's jobs wait though none of them ends, from the first minute in which
-- some wait to the next in which one ends. What is shorter may be chance.
WITH marked AS (
    SELECT queue, label, minute, depth, count_if(finishes + failures + retries > 0) OVER (
        PARTITION BY queue ORDER BY minute
    ) AS era
    FROM r_minutes
), eras AS (
    SELECT queue, label, era, min(minute) AS begin, max(depth) AS depth,
        min(minute) FILTER (WHERE depth > 0) AS waiting
    FROM marked GROUP BY queue, label, era
), stops AS (
    SELECT queue, label, era, depth,
        CASE WHEN depth > 0 THEN greatest(waiting, begin + INTERVAL 1 MINUTE) END AS since,
        lead(begin) OVER (PARTITION BY queue ORDER BY era) AS until
    FROM eras
)
SELECT *, epoch(until - since) AS seconds, bin_of(until) AS bin FROM stops
WHERE seconds >= 600 AND era > 0 ORDER BY depth * seconds DESC LIMIT 100;

-- :groups
SELECT * FROM failures WHERE is_asked(queue)
    AND last_seen >= getvariable('since') AND first_seen < getvariable('until')
ORDER BY count DESC, queue, name, message LIMIT 20;

-- :workers
SELECT * FROM r_workers ORDER BY busy DESC, worker;

-- :worker_count
SELECT count(DISTINCT worker) AS workers FROM r_attempts;

-- :busy
-- How many jobs were worked on at a time, by worker; null: by all that are not among the busiest.
SELECT r_workers.worker AS label, bin, sum((least(epoch_us(ended_at), first + (bin + 1) * size)
    - greatest(epoch_us(started_at), first + bin * size)) / size) AS value
FROM (
    SELECT worker, started_at, ended_at, getvariable('first') AS first,
        getvariable('size') AS size,
        unnest(range(greatest(bin_of(started_at), 0), bin + 1)) AS bin
    FROM r_attempts WHERE started_at IS NOT NULL
) AS pieces LEFT JOIN r_workers USING (worker) GROUP BY label, bin;

-- :targets
-- The first target that fits a queue counts.
WITH fitting AS (
    SELECT queue, min(number) AS number
    FROM (SELECT DISTINCT queue FROM r_attempts), r_targets
    WHERE regexp_matches(queue, pattern) GROUP BY queue
)
SELECT number, bin, count(*) AS starts, how_often(wait_seconds <= seconds) AS within,
    quantile_disc(wait_seconds, 0.95) AS p95
FROM r_attempts JOIN fitting USING (queue) JOIN r_targets USING (number)
WHERE wait_seconds IS NOT NULL GROUP BY GROUPING SETS ((number, bin), (number));

-- :week
SELECT isodow(minute) - 1 AS day, hour(minute) AS hour, total(arrivals) AS arrivals
FROM r_minutes GROUP BY ALL;
