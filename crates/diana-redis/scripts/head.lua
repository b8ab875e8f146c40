-- The operation and the time of decide.lua.
--
--   ARGV[1]  take, peek, charge, refund, or another of the algorithm's functions
--   ARGV[2]  now, in microseconds since 1970; empty: Redis's TIME
--   ARGV[3]  the deadline, in the same unit; empty: none; "local": none, and now is Redis's TIME as the caller knows it
local argv, op, deadline = ARGV, ARGV[1], ARGV[3]
local now = tonumber(argv[2])
local caller_time = now ~= nil and deadline ~= 'local'
if deadline == 'local' then deadline = '' end

-- A peek is a take that writes nothing.
local writes = op ~= 'peek'
if not writes then op = 'take' end
