-- Shared by leaky bucket and minimum interval: a time that a cost advances, without leases.

-- The time after a cost: later than the stored time, or than now if that is in the past. Returned after what was seen,
-- and before the tail; nil if it was written under other parameters.
--   base + 1, 2  the cost as a duration
--   base + 3     the denominator
local function time_later(key, parameters, base)
  local micros, numerator, tail = time_read(key, parameters, base)
  if not micros then return end
  local seen = { micros, numerator }
  if micros < now then micros, numerator = now, 0 end
  micros, numerator =
    time_add(micros, numerator, tonumber(argv[base + 1]), tonumber(argv[base + 2]), tonumber(argv[base + 3]))
  return seen, micros, numerator, tail
end

-- Rarely used functions.
local function queue_rare()
  local functions = time_rare()

  -- Advances the time unconditionally; `base` is as for time_later.
  function functions.charge(key, parameters, base)
    local seen, micros, numerator, tail = time_later(key, parameters, base)
    if not seen then return end
    return true, seen, time_text(parameters, micros, numerator, tail)
  end

  return functions
end
