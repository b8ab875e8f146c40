-- Replaces a state if it is unchanged: migrates a key to other parameters. Rust computes the new state, since that is
-- rare and needs wide integers.
--
-- KEYS[1]   the state
-- ARGV[1]   the output of dump.lua for it
-- ARGV[2]   PX or PXAT, or empty for no expiry
-- ARGV[3]   milliseconds
-- ARGV[4..] the new state: nothing to delete it; `s` and a text; `z`, and scores and members in turn
-- returns   1 if it was written, 0 if the state has changed
local key = KEYS[1]
if dump(key) ~= ARGV[1] then return 0 end
redis.call('DEL', key)
if ARGV[4] == 's' then
  redis.call('SET', key, ARGV[5])
elseif ARGV[4] == 'z' then
  for index = 5, #ARGV, 2 do redis.call('ZADD', key, ARGV[index], ARGV[index + 1]) end
end
if ARGV[4] and ARGV[2] == 'PX' then
  redis.call('PEXPIRE', key, ARGV[3])
elseif ARGV[4] and ARGV[2] == 'PXAT' then
  redis.call('PEXPIREAT', key, ARGV[3])
end
return 1
