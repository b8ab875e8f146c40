-- A state that is a sorted set: its head, which contains the parameters, and its expiry.
--
-- The head is a member `=PARAMETERS SINCE` with the score -inf, so it always comes first. A set never consists of its
-- head alone.
local set = {}

-- The head of the set at `key`, or that of a new set; nil if the parameters differ.
function set.head(key, parameters, base)
  local first = redis.pcall('ZRANGE', key, 0, 0)
  if first.err then return end
  local head = first[1]
  if not head then return format('=%s %s', parameters, argv[base - 1]) end
  if sub(head, 1, #parameters + 2) == '=' .. parameters .. ' ' then return head end
end

-- Lets the set expire when it equals a new key; see the prelude for the exception if the caller provided the time.
function set.expire(key, fresh_at)
  if caller_time then
    redis.call('PEXPIRE', key, '3600000')
  else
    redis.call('PEXPIREAT', key, format('%.0f', ceil(fresh_at / 1000)))
  end
end
