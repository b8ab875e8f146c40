-- The text at `key` after the parameters: false if there is no state, nil if it was written under other parameters.
local function fields(key, parameters)
  local raw = redis.pcall('GET', key)
  if not raw then return false end
  if type(raw) == 'string' and sub(raw, 1, #parameters + 1) == parameters .. ' ' then
    return sub(raw, #parameters + 2)
  end
end

-- The configuration of a new state, and its creation time: permits that were taken from it are not refunded to a later
-- state that replaced it after a reset.
local function newborn(base)
  return format('%s-%.0f', argv[base - 1], now)
end

-- The creation time of the state that ends with `since`.
local function born(since)
  return tonumber(match(since, '%-(%d+)$') or 0)
end
