"""Operations on Redis that must happen as a whole, in Lua.

A consumer has a heartbeat key that expires, and for each queue a processing list. Both are renewed
before anything is moved into such a list: so consumers that search the lists of dead ones always
find it.
"""

from typing import Final

# Renews the heartbeat, puts tasks whose retry is due back on their queues, and fetches. KEYS:
# heartbeat, registry, then for each queue: queue, processing, retries. ARGV: heartbeat ms, count,
# then for each queue its entry in the registry. Gives: ms until the next retry is due or -1, then
# pairs of the queue's number and a message.
FETCH: Final = """
redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local left, due, taken = tonumber(ARGV[2]), -1, {}
for i = 3, #KEYS, 3 do
  redis.call('SADD', KEYS[2], ARGV[i / 3 + 2])
  local late = redis.call('ZRANGEBYSCORE', KEYS[i + 2], '-inf', now, 'LIMIT', 0, 100)
  for _, entry in ipairs(late) do
    redis.call('RPUSH', KEYS[i], string.sub(entry, 34))
    redis.call('ZREM', KEYS[i + 2], entry)
  end
  local first = redis.call('ZRANGE', KEYS[i + 2], 0, 0, 'WITHSCORES')
  if first[2] and (due < 0 or first[2] - now < due) then due = math.max(first[2] - now, 0) end
  while left > 0 do
    local message = redis.call('LMOVE', KEYS[i], KEYS[i + 1], 'LEFT', 'RIGHT')
    if not message then break end
    table.insert(taken, i / 3 - 1)
    table.insert(taken, message)
    left = left - 1
  end
end
return {due, taken}
"""

# The task has ended. A success is stored even if the task was another's by then: it is true.
# KEYS: processing, losses, result, dead. ARGV: message, result, seconds, success, unreadable.
# Gives whether the task was still ours; so do the next two.
FINISH: Final = """
local held = redis.call('LREM', KEYS[1], 1, ARGV[1])
if held == 1 then redis.call('HDEL', KEYS[2], redis.sha1hex(ARGV[1])) end
if ARGV[2] ~= '' and (held == 1 or ARGV[4] == '1') then
  redis.call('SETEX', KEYS[3], ARGV[3], ARGV[2])
end
if held == 1 and ARGV[5] == '1' then redis.call('RPUSH', KEYS[4], ARGV[1]) end
return held
"""

# The task is tried again later. The entry has a token in front, so that no two are the same.
# KEYS: processing, losses, retries. ARGV: message, token, message for then, ms until then.
RETRY_LATER: Final = """
local held = redis.call('LREM', KEYS[1], 1, ARGV[1])
if held == 1 then
  redis.call('HDEL', KEYS[2], redis.sha1hex(ARGV[1]))
  local clock = redis.call('TIME')
  local due = clock[1] * 1000 + math.floor(clock[2] / 1000) + ARGV[4]
  redis.call('ZADD', KEYS[3], due, ARGV[2] .. ':' .. ARGV[3])
end
return held
"""

# The task goes back to the front of its queue. KEYS: processing, queue. ARGV: message.
RELEASE: Final = """
local held = redis.call('LREM', KEYS[1], 1, ARGV[1])
if held == 1 then redis.call('LPUSH', KEYS[2], ARGV[1]) end
return held
"""

# Another consumer's tasks go back to the front of their queue, if it is dead. A task that has been
# lost too often, because it kills its consumers, is put aside. KEYS: heartbeat, registry, queue,
# processing, losses, dead. ARGV: entry in the registry, most losses, seconds to remember losses.
# Gives what was put aside.
RECOVER: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then return {} end
local aside = {}
while true do
  local message = redis.call('RPOP', KEYS[4])
  if not message then break end
  local name = redis.sha1hex(message)
  if redis.call('HINCRBY', KEYS[5], name, 1) > tonumber(ARGV[2]) then
    redis.call('HDEL', KEYS[5], name)
    redis.call('RPUSH', KEYS[6], message)
    table.insert(aside, message)
  else
    redis.call('LPUSH', KEYS[3], message)
  end
  redis.call('EXPIRE', KEYS[5], ARGV[3])
end
redis.call('SREM', KEYS[2], ARGV[1])
return aside
"""

# A consumer ends: its tasks are released. KEYS: registry, queue, processing. ARGV: entry in the
# registry.
UNREGISTER: Final = """
while redis.call('LMOVE', KEYS[3], KEYS[2], 'RIGHT', 'LEFT') do end
redis.call('SREM', KEYS[1], ARGV[1])
return 0
"""
