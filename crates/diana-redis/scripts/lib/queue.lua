-- What leaky bucket and minimum interval share: a moment that a cost moves, without leases.

-- Where a cost moves the moment to: later than it was, or than now if it is past. Before that what was seen, and after it
-- the tail; nil if it was written under other parameters.
--   place + 1, 2  what the cost takes, as a time
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

-- What is needed seldom.
local function line_seldom()
  local functions = moment_seldom()

  -- Moves the moment without asking; `place` is as for moment_later.
  function functions.charge(key, parameters, place)
    local seen, micros, numerator, tail = moment_later(key, parameters, place)
    if not seen then return end
    return true, seen, moment_written(parameters, micros, numerator, tail)
  end

  return functions
end
