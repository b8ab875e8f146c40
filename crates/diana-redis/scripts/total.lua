-- Total: the number of used permits. The key never expires, and stays even when all of it was refunded: an expired key
-- would be reset.
--
-- KEYS   the count, as text: PARAMETERS USED SINCE
-- ARGV   1  the cost
--        2  take: the limit; refund: the creation time of the state that it was taken from
-- seen   the count, and the creation time of the state
local function read(key, parameters, base)
  local text = fields(key, parameters)
  if text == nil then return end
  if not text then return 0, newborn(base) end
  local used, since = match(text, '^(%d+) (%S+)$')
  return tonumber(used), since
end

local function granted(parameters, seen, used, since)
  return true, { seen, born(since) }, format('%s %.0f %s', parameters, used, since), math.huge
end

return {
  take = function(key, parameters, base)
    local used, since = read(key, parameters, base)
    if not used then return end
    local cost = tonumber(argv[base + 1])
    -- Not `used + cost > limit`: the sum might be rounded down.
    if cost > argv[base + 2] - used then return false, { used, born(since) } end
    return granted(parameters, used, used + cost, since)
  end,

  charge = function(key, parameters, base)
    local used, since = read(key, parameters, base)
    if not used then return end
    return granted(parameters, used, math.min(used + argv[base + 1], MAX_PERMITS), since)
  end,

  refund = function(key, parameters, base)
    local used, since = read(key, parameters, base)
    if not used then return end
    -- After a reset the earlier receipts are void.
    if used == 0 or born(since) ~= tonumber(argv[base + 2]) then return true end
    return granted(parameters, used, math.max(used - argv[base + 1], 0), since)
  end,
}
