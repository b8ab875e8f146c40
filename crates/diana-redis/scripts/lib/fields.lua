-- What follows the parameters in the text at `key`: false if there is no state, nil if it was written under others.
local function fields(key, parameters)
  local raw = redis.pcall('GET', key)
  if not raw then return false end
  if type(raw) == 'string' and sub(raw, 1, #parameters + 1) == parameters .. ' ' then
    return sub(raw, #parameters + 2)
  end
end

-- Since which configuration a state is there that is new, and when it came to be: what was taken from it is not given back to
-- another one that comes after it, when it was reset.
local function newborn(place)
  return format('%s-%.0f', argv[place - 1], now)
end

-- When the state came to be that has this at its end.
local function born(since)
  return tonumber(match(since, '%-(%d+)$') or 0)
end
