-- Guava's limiter in microseconds: stored permits, and when the next request may proceed. diana-core's `guava` explains
-- how it works; these are its operations, on the same doubles and in the same order, so that the results are
-- bit-identical.
--
-- KEYS   PARAMETERS STORED NEXT_FREE AHEAD SINCE, where STORED has the 17 digits that identify every double, and AHEAD
--        is how far in the future NEXT_FREE lay when it was written, in whole seconds, rounded up. As in lib/gcra.lua,
--        a time that lies further ahead was written before the clock was set back.
-- ARGV   1     the maximum of stored permits
--        2     microseconds of idleness that store one permit
--        3     the stored permits of a new key: the maximum, or its scaled value in the microsecond of a rate change
--        take, charge:  4     microseconds for which the key is stored at least
--                       5     microseconds between two permits in a steady flow
--                       6     the cost
--                       7     the maximum wait in microseconds; charge: unused
--                       8...  the price of stored permits, see the algorithm's file
--        refund:        4, 5  the stored permits and the next free time from before the grant
--                       6, 7  their values after it
-- seen   the stored permits, the next free time
local guava = {}

-- Java's `(long)` of a number that is never negative, capped at END.
function guava.whole_micros(micros)
  if not (micros >= 1) then return 0 end
  if micros >= END then return END end
  return floor(micros)
end

local function read(key, parameters, base)
  local raw = redis.pcall('GET', key)
  if not raw then return tonumber(argv[base + 3]), now, argv[base - 1] end
  if type(raw) == 'table' or sub(raw, 1, #parameters + 1) ~= parameters .. ' ' then return end
  local stored, next_free, ahead, since = match(raw, '^(%S+) (%d+) (%d+) (%S+)$', #parameters + 2)
  if not tonumber(stored) then return end
  local furthest = now + ahead * 1000000
  next_free = tonumber(next_free)
  if next_free > furthest then next_free, clock_set_back = furthest, true end
  return tonumber(stored), next_free, since
end

local function stored_after(stored, idle, base)
  return math.min(tonumber(argv[base + 1]), stored + idle / tonumber(argv[base + 2]))
end

-- Converts idle time into stored permits.
local function settled(stored, next_free, base)
  if now <= next_free then return stored, next_free end
  return stored_after(stored, now - next_free, base), now
end

-- The microsecond from which on the store is full. The product and the quotient that fills the store may be rounded to
-- either side of a microsecond.
local function full_at(stored, next_free, base)
  local max_stored, interval = tonumber(argv[base + 1]), tonumber(argv[base + 2])
  local idle = guava.whole_micros(ceil((max_stored - stored) * interval))
  -- After a change of the rate has scaled it, a store may exceed its maximum until the next microsecond.
  if stored_after(stored, idle, base) < max_stored or stored > max_stored then idle = idle + 1 end
  return math.min(next_free + idle, END)
end

local function text(parameters, stored, next_free, since)
  -- In this order: math.max returns the first of -0 and 0, and the text of -0 can't be parsed.
  local ahead = math.max(0, ceil((next_free - now) / 1000000))
  return format('%s %.17g %.0f %.0f %s', parameters, stored, next_free, ahead, since)
end

-- The algorithm in which `price_of_stored(stored, taken, stable_interval, base)` is the price of stored permits, in
-- whole microseconds.
function guava.algorithm(price_of_stored)
  local function spend(parameters, base, stored, next_free, since)
    stored, next_free = settled(stored, next_free, base)
    local interval, required = tonumber(argv[base + 5]), tonumber(argv[base + 6])
    local from_store = math.min(required, stored)
    local price = guava.whole_micros((required - from_store) * interval)
    price = price + price_of_stored(stored, from_store, interval, base)
    stored, next_free = stored - from_store, math.min(next_free + price, END)
    local fresh_at = math.max(full_at(stored, next_free, base), math.min(now + tonumber(argv[base + 4]), END))
    return text(parameters, stored, next_free, since), fresh_at
  end

  local algorithm = {}

  function algorithm.take(key, parameters, base)
    local stored, next_free, since = read(key, parameters, base)
    if not stored then return end
    local seen = { format('%.17g', stored), next_free }
    if next_free - tonumber(argv[base + 7]) > now then return false, seen end
    return true, seen, spend(parameters, base, stored, next_free, since)
  end

  function algorithm.charge(key, parameters, base)
    local stored, next_free, since = read(key, parameters, base)
    if not stored then return end
    return true, nil, spend(parameters, base, stored, next_free, since)
  end

  function algorithm.repair(key, parameters, base)
    local stored, next_free, since = read(key, parameters, base)
    return text(parameters, stored, next_free, since), full_at(stored, next_free, base)
  end

  -- Restores the state from before the grant, if the key is unchanged since, and time has not refilled it already.
  function algorithm.refund(key, parameters, base)
    local stored, next_free, since = read(key, parameters, base)
    if not stored then return end
    local is_last = stored == tonumber(argv[base + 6]) and next_free == tonumber(argv[base + 7])
    if not is_last or next_free >= END then return true end
    local before, before_free = tonumber(argv[base + 4]), tonumber(argv[base + 5])
    local then_stored, then_free = settled(before, before_free, base)
    local now_stored, now_free = settled(stored, next_free, base)
    if then_stored == now_stored and then_free == now_free then return true end
    -- Not deleted at once: within the microsecond of a change, a new key may have other stored permits than a full one.
    local fresh_at = math.max(full_at(before, before_free, base), now + 1)
    return true, nil, text(parameters, before, before_free, since), fresh_at
  end

  return algorithm
end
