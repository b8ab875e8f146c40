-- Takes one ask, the most frequent call: decide.lua without the parts that only several asks need.
--
-- KEYS[1]  the key of the ask's state
-- ARGV     those of head_one.lua, and
--            2  the parameters
--            3  since: the configuration that they are of
--            4  how many arguments follow
--            5  ... see the algorithm's file
-- returns  what decide.lua returns for one request of one ask
local allowed, seen, value, fresh_at = algorithm.take(KEYS[1], argv[2], 4)
if allowed == nil then return { now, seen or -1 } end
if clock_set_back and not allowed then
  write(KEYS[1], (algorithm.repair or algorithm.rare().repair)(KEYS[1], argv[2], 4))
elseif allowed then
  write(KEYS[1], value, fresh_at)
end
return { now, allowed and 1 or 0, #seen, unpack(seen) }
