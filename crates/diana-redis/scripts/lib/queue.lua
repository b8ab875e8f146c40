-- Shared by leaky bucket and minimum interval: a time that a cost advances, without leases.

-- The time after a cost: later than the stored time, or than now if that is in the past. Returned after what was seen,
-- and before the tail; nil if it was written under other parameters.
--   place + 1, 2  the cost as a duration
--   place + 3     the denominator
local function moment_later(key, parameters, place)
  local micros, numerator, tail = moment_read(key, parameters, place)
  if not micros then return end
  local seen = { micros, numerator }
  if micros < now then micros, numerator = now, 0 end
  micros, numerator =
    moment_add(micros, numerator, tonumber(argv[place + 1]), tonumber(argv[place + 2]), tonumber(argv[place + 3]))
  return seen, micros, numerator, tail
end

-- Rarely used functions.
local function line_seldom()
  local functions = moment_seldom()

  -- Advances the time unconditionally; `place` is as for moment_later.
  function functions.charge(key, parameters, place)
    local seen, micros, numerator, tail = moment_later(key, parameters, place)
    if not seen then return end
    return true, seen, moment_written(parameters, micros, numerator, tail)
  end

  return functions
end
