-- Token bucket with whole refills: the missing tokens, as of which refill step, and the time of the last grant.
--
-- KEYS   the bucket, as text: PARAMETERS MISSING STEPPED GRANTED SINCE, both times in microseconds
-- ARGV   1  how many tokens a refill adds
--        2  how often, in microseconds
--        3  how long after the last grant the phase of the refills is stored, in microseconds
--        4  the cost
--        take:    5  the capacity
--        refund:  5  the refill step as of which the grant was made
--                 6  how many tokens were missing after it
-- seen   missing, stepped, granted
--
-- A time in the future was written before the clock was set back (after a failover), and counts as now: otherwise
-- nothing would be refilled until then.
--
-- All dividends are less than 2^53, so the remainder is exact, and with it the quotient. A product that is not exact is
-- larger than any possible number of missing tokens.
local function settle(key, parameters, base)
  local text = fields(key, parameters)
  if text == nil then return end
  local missing, stepped, granted, since = 0, 0, 0, argv[base - 1]
  if text then
    missing, stepped, granted, since = match(text, '^(%d+) (%d+) (%d+) (%S+)$')
    if not missing then return end
    missing, stepped, granted = tonumber(missing), tonumber(stepped), tonumber(granted)
    if stepped > now or granted > now then
      stepped, granted, clock_set_back = math.min(stepped, now), math.min(granted, now), true
    end
  end
  local seen = { missing, stepped, granted }
  local every = tonumber(argv[base + 2])
  local rest = fmod(now - stepped, every)
  local remaining = math.max(missing - (now - stepped - rest) / every * argv[base + 1], 0)
  if missing == 0 or (remaining == 0 and now - granted > tonumber(argv[base + 3])) then
    -- The next grant begins a new phase.
    return seen, 0, now, since
  end
  return seen, remaining, now - rest, since
end

-- The text of the state, and when it equals a new key: when all is refilled, and strictly later than the phase is
-- stored.
local function written(parameters, base, seen, missing, stepped, granted, since)
  local tokens = tonumber(argv[base + 1])
  local rest = fmod(missing, tokens)
  local refills = (missing - rest) / tokens + (rest > 0 and 1 or 0)
  local fresh_at = math.max(stepped + refills * argv[base + 2], granted + argv[base + 3] + 1)
  local text = format('%s %.0f %.0f %.0f %s', parameters, missing, stepped, granted, since)
  return true, seen, text, math.min(fresh_at, END)
end

return {
  take = function(key, parameters, base)
    local seen, missing, stepped, since = settle(key, parameters, base)
    if not seen then return end
    local cost = tonumber(argv[base + 4])
    -- Not `missing + cost > capacity`: the sum might be rounded down.
    if cost > argv[base + 5] - missing then return false, seen end
    return written(parameters, base, seen, missing + cost, stepped, now, since)
  end,

  charge = function(key, parameters, base)
    local seen, missing, stepped, since = settle(key, parameters, base)
    if not seen then return end
    return written(parameters, base, seen, math.min(missing + argv[base + 4], MAX_PERMITS), stepped, now, since)
  end,

  repair = function(key, parameters, base)
    local seen, missing, stepped, since = settle(key, parameters, base)
    return select(3, written(parameters, base, nil, missing, stepped, seen[3], since))
  end,

  -- Refills restore the oldest grants first, so the receipt's own tokens are the last of those that were missing after
  -- its grant, and each refill since then has reduced those before them.
  refund = function(key, parameters, base)
    local seen, missing, stepped, since = settle(key, parameters, base)
    if not seen then return end
    local elapsed = math.max(stepped - argv[base + 5], 0)
    local every = tonumber(argv[base + 2])
    local remaining = argv[base + 6] - (elapsed - fmod(elapsed, every)) / every * argv[base + 1]
    local returned = math.min(remaining, tonumber(argv[base + 4]), missing)
    if returned <= 0 then return true end
    if returned == missing then return true, nil, false end
    return written(parameters, base, nil, missing - returned, stepped, seen[3], since)
  end,
}
