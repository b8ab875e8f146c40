-- The common part of every script: the time, the deadline, and helpers for all algorithms.
--
-- The script that is sent is assembled from head.lua, this file, the libraries and algorithms that the request needs,
-- and decide.lua, which documents KEYS and ARGV; or, for the most common request, from head_one.lua and decide_one.lua.
--
-- All gateways use Redis's clock, so that their own clocks need not agree, or (`time: local`) what they know of it, which saves
-- the call. Another time that the caller provides is for tests: it may lie in the past, so keys are then stored for an hour rather than until they equal a new key.
--
-- At the deadline the caller has timed out, and has decided without Redis. To charge the request after that (Redis was
-- frozen, the network was slow) would charge it twice.
--
-- Numbers are doubles, and whole ones are exact up to 2^53: microseconds since 1970 fit until 2255. They must not be
-- turned into text by `..`, which keeps 14 digits, but by `%.0f`.
local find, format, match, sub = string.find, string.format, string.match, string.sub
local ceil, floor, fmod = math.ceil, math.floor, math.fmod

if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
if deadline ~= '' and now > tonumber(deadline) then
  return { now, 'late' }
end

-- The highest time in microseconds; later times are capped at it.
local END = 9000000000000000
-- The highest count of permits; higher counts are capped at it.
local MAX_PERMITS = 9007199254740992

-- Whether the last state that was read lay in the future, since it was written before the clock was set back (after a
-- failover), and was set back likewise. It must be written even if the request is denied: otherwise it would stay at
-- the same distance ahead of now, until the clock has caught up.
local clock_set_back = false
