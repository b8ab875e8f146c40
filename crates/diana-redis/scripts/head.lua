-- What decide.lua is asked, and when.
--
--   ARGV[1]  take, peek, charge, refund, or another of the algorithm's functions
--   ARGV[2]  now, in microseconds since 1970; empty: what Redis's TIME says
--   ARGV[3]  the deadline, in the same measure; empty: none
local argv, op, deadline = ARGV, ARGV[1], ARGV[3]
local now = tonumber(argv[2])
local handed_in = now ~= nil

-- A peek does as a take does, and writes nothing.
local writes = op ~= 'peek'
if not writes then op = 'take' end
