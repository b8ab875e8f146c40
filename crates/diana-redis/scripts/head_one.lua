-- The arguments of decide_one.lua: the operation is always take, and the time is always now.
--
--   ARGV[1]  the deadline, in microseconds since 1970; empty: none
local argv, op, deadline, writes, caller_time = ARGV, 'take', ARGV[1], true, false
local now
