-- Writes a state in place of another, if that is still what is there: how a key comes over to other parameters. What it
-- comes to is reckoned in Rust, since that is rare and needs wide integers.
--
-- KEYS[1]   the state
-- ARGV[1]   what dump.lua said of it
-- ARGV[2]   PX or PXAT, or empty for no expiry
-- ARGV[3]   milliseconds
-- ARGV[4..] the new state: nothing to delete it; `s` and a text; `z`, and scores and members in turn
-- returns   1 if it was written, 0 if another state is there by now
local key = KEYS[1]
if dump(key) ~= ARGV[1] then return 0 end
redis.call('DEL', key)
if ARGV[4] == 's' then
  redis.call('SET', key, ARGV[5])
elseif ARGV[4] == 'z' then
  for place = 5, #ARGV, 2 do redis.call('ZADD', key, ARGV[place], ARGV[place + 1]) end
end
if ARGV[4] and ARGV[2] == 'PX' then
  redis.call('PEXPIRE', key, ARGV[3])
elseif ARGV[4] and ARGV[2] == 'PXAT' then
  redis.call('PEXPIREAT', key, ARGV[3])
end
return 1
