-- What every script goes on with: the time, the deadline, and what all algorithms need.
--
-- The script that is sent is put together from head.lua, this file, the libraries and algorithms that the request needs,
-- and decide.lua, which tells the whole of KEYS and ARGV; or, for the most common request, from head_one.lua and
-- decide_one.lua.
--
-- All gateways go by Redis's clock, so that they need not agree among themselves. A time that is handed in is for tests:
-- it may lie in the past, so keys are then kept for an hour rather than until the moment at which they are as good as new.
--
-- Whoever asked has given up at the deadline, and has decided without Redis. To charge the request now (Redis was frozen,
-- the network was slow) would charge it twice.
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

-- The last microsecond that is told apart; what lies beyond stays there.
local END = 9000000000000000
-- The largest count of permits; what goes beyond stays there.
local MOST = 9007199254740992

-- Whether the state that was read last lay ahead of its time, since it was written by a clock that has been put back since
-- (a replica took over), and was put back likewise. It must be written so even if the request is denied: else it would
-- stay as far ahead of now as it is, for as long as the clock takes to catch up.
local put_back = false
