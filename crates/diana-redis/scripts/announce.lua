-- The heartbeat of an instance: counts the live instances, which divide a limit when each must use local counts.
--
-- KEYS[1]  the instances: a sorted set of their ids, by their last heartbeat, in microseconds since 1970
-- ARGV[1]  the id of this one
-- ARGV[2]  for how many microseconds an instance counts as alive
-- returns  Redis's time, and the number of live instances
--
-- It writes, so it also shows that this Redis is writable: it is not a replica, and has memory left.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local text = function(number) return string.format('%.0f', number) end
redis.call('ZADD', KEYS[1], text(now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now - ARGV[2]))
-- Heartbeats in the future were written before the clock was set back.
redis.call('ZREMRANGEBYSCORE', KEYS[1], text(now + ARGV[2]), '+inf')
redis.call('PEXPIRE', KEYS[1], text(ARGV[2] / 1000))
return { now, redis.call('ZCARD', KEYS[1]) }
