-- The state at a key as text, whatever its type: `s` and the text of a string; `z` and the members of a sorted set with
-- their scores, a line each; `?` and the name of the type if it is neither, which Diana never writes. False: no key.
local function dump(key)
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' then
    return false
  elseif kind == 'string' then
    return 's' .. redis.call('GET', key)
  elseif kind == 'zset' then
    return 'z' .. table.concat(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), '\n')
  end
  return '?' .. kind
end
