-- What follows the parameters in the text at `key`: false if there is no state, nil if it was written under others.
local function fields(key, parameters)
  local raw = redis.pcall('GET', key)
  if not raw then return false end
  if type(raw) == 'string' and sub(raw, 1, #parameters + 1) == parameters .. ' ' then
    return sub(raw, #parameters + 2)
  end
end
