-- The arguments of decide_one.lua with a time that is provided: the operation is always take, and there is no deadline.
--
--   ARGV[1]  now, in microseconds since 1970, as the caller knows Redis's TIME
local argv, op, deadline, writes, caller_time = ARGV, 'take', '', true, false
local now = tonumber(ARGV[1])
