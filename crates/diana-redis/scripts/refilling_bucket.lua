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
local function settle(key, parameters, place)
  local text = fields(key, parameters)
  if text == nil then return end
  local missing, stepped, granted, since = 0, 0, 0, argv[place - 1]
  if text then
    missing, stepped, granted, since = match(text, '^(%d+) (%d+) (%d+) (%S+)$')
    if not missing then return end
    missing, stepped, granted = tonumber(missing), tonumber(stepped), tonumber(granted)
    if stepped > now or granted > now then
      stepped, granted, put_back = math.min(stepped, now), math.min(granted, now), true
    end
  end
  local seen = { missing, stepped, granted }
  local every = tonumber(argv[place + 2])
  local rest = fmod(now - stepped, every)
  local left = math.max(missing - (now - stepped - rest) / every * argv[place + 1], 0)
  if missing == 0 or (left == 0 and now - granted > tonumber(argv[place + 3])) then
    -- The next grant begins a new phase.
    return seen, 0, now, since
  end
  return seen, left, now - rest, since
end

-- The text of the state, and when it equals a new key: when all is refilled, and strictly later than the phase is
-- stored.
local function written(parameters, place, seen, missing, stepped, granted, since)
  local tokens = tonumber(argv[place + 1])
  local rest = fmod(missing, tokens)
  local refills = (missing - rest) / tokens + (rest > 0 and 1 or 0)
  local fresh_at = math.max(stepped + refills * argv[place + 2], granted + argv[place + 3] + 1)
  local text = format('%s %.0f %.0f %.0f %s', parameters, missing, stepped, granted, since)
  return true, seen, text, math.min(fresh_at, END)
end

return {
  take = function(key, parameters, place)
    local seen, missing, stepped, since = settle(key, parameters, place)
    if not seen then return end
    local cost = tonumber(argv[place + 4])
    -- Not `missing + cost > capacity`: the sum might be rounded down.
    if cost > argv[place + 5] - missing then return false, seen end
    return written(parameters, place, seen, missing + cost, stepped, now, since)
  end,

  charge = function(key, parameters, place)
    local seen, missing, stepped, since = settle(key, parameters, place)
    if not seen then return end
    return written(parameters, place, seen, math.min(missing + argv[place + 4], MOST), stepped, now, since)
  end,

  repair = function(key, parameters, place)
    local seen, missing, stepped, since = settle(key, parameters, place)
    return select(3, written(parameters, place, nil, missing, stepped, seen[3], since))
  end,

  -- Refills restore the oldest grants first, so the receipt's own tokens are the last of those that were missing after
  -- its grant, and each refill since then has reduced those before them.
  refund = function(key, parameters, place)
    local seen, missing, stepped, since = settle(key, parameters, place)
    if not seen then return end
    local elapsed = math.max(stepped - argv[place + 5], 0)
    local every = tonumber(argv[place + 2])
    local left = argv[place + 6] - (elapsed - fmod(elapsed, every)) / every * argv[place + 1]
    local returned = math.min(left, tonumber(argv[place + 4]), missing)
    if returned <= 0 then return true end
    if returned == missing then return true, nil, false end
    return written(parameters, place, nil, missing - returned, stepped, seen[3], since)
  end,
}
