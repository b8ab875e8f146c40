-- An instance says that it is there, so that all know how many share a limit when each must go by counts of its own.
--
-- KEYS[1]  the instances: a sorted set of their ids, by when they last said so, in microseconds since 1970
-- ARGV[1]  the id of this one
-- ARGV[2]  for how many microseconds one counts as there
-- returns  Redis's time, and how many there are
--
-- It writes, so it also shows that this Redis can be written to: it is no replica, and has memory left.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local text = function(number) return string.format('%.0f', number) end
redis.call('ZADD', KEYS[1], text(now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now - ARGV[2]))
-- Those whose time lies ahead were seen by a clock that has been put back since.
redis.call('ZREMRANGEBYSCORE', KEYS[1], text(now + ARGV[2]), '+inf')
redis.call('PEXPIRE', KEYS[1], text(ARGV[2] / 1000))
return { now, redis.call('ZCARD', KEYS[1]) }
