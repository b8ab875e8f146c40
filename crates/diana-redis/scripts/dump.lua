-- Returns the state at a key.
--
-- KEYS[1]  the state
-- returns  Redis's time, in microseconds since 1970, and the state in the format of lib/dump.lua
local time = redis.call('TIME')
return { time[1] * 1000000 + time[2], dump(KEYS[1]) }
