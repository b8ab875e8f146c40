-- A state that is a sorted set: its head, which tells the parameters, and its expiry.
--
-- The head is a member `=PARAMETERS SINCE` with the score -inf, so it always comes first. A set never consists of its head
-- alone.
local set = {}

-- The head of the set at `key`, or the one that a new set is to have; nil if the parameters are others.
function set.head(key, parameters, place)
  local first = redis.pcall('ZRANGE', key, 0, 0)
  if first.err then return end
  local head = first[1]
  if not head then return format('=%s %s', parameters, argv[place - 1]) end
  if sub(head, 1, #parameters + 2) == '=' .. parameters .. ' ' then return head end
end

-- Lets the set go when it is as good as none. The time in the prelude tells why not so if it was handed in.
function set.expire(key, fresh_at)
  if handed_in then
    redis.call('PEXPIRE', key, '3600000')
  else
    redis.call('PEXPIREAT', key, format('%.0f', ceil(fresh_at / 1000)))
  end
end
