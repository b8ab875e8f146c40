-- A point in time, exact where the interval of a rate is not a whole number of microseconds: microseconds, and a
-- numerator over the interval's denominator. 3/s is 333333 1/3, so its times count thirds.
--
-- As text: PARAMETERS MICROSECONDS NUMERATOR AHEAD TAIL. The tail ends with the configuration that the parameters are
-- of; the rest of it is specific to the algorithm. AHEAD is how far in the future the time lay when it was written, in
-- whole seconds, rounded up. The distance only shrinks, so a time that lies further ahead was written before the clock
-- was set back (after a failover): it is set back likewise.

-- The time at `key`, and the tail; nil if it was written under other parameters.
local function time_read(key, parameters, base)
  local raw = redis.pcall('GET', key)
  if not raw then return 0, 0, argv[base - 1] end
  if type(raw) == 'table' then return end
  local under, micros, numerator, ahead, tail = match(raw, '^(%S+) (%d+) (%d+) (%d+) (.+)$')
  if under ~= parameters then return end
  micros, numerator = tonumber(micros), tonumber(numerator)
  local furthest = now + ahead * 1000000
  if micros > furthest then micros, numerator, clock_set_back = furthest, 0, true end
  return micros, numerator, tail
end

-- What to write for the time, and when it equals a new key.
local function time_text(parameters, micros, numerator, tail)
  local ahead = micros > now and ceil((micros - now) / 1000000) or 0
  local text = format('%s %.0f %.0f %.0f %s', parameters, micros, numerator, ahead, tail)
  return text, micros + (numerator > 0 and 1 or 0)
end

-- Adds a duration to the time, both with this denominator.
local function time_add(micros, numerator, more_micros, more_numerator, denominator)
  micros, numerator = micros + more_micros, numerator + more_numerator
  if numerator >= denominator then micros, numerator = micros + 1, numerator - denominator end
  if micros > END then return END, 0 end
  return micros, numerator
end

-- Whether one time is earlier than another.
local function time_earlier(micros, numerator, other_micros, other_numerator)
  return micros < other_micros or (micros == other_micros and numerator < other_numerator)
end

-- Rarely used functions, for an algorithm's `rare`.
local function time_rare()
  return {
    -- Refunds the part of a receipt's segment that still lies in the future (diana-core's `Gcra::refund` explains why).
    --   base + 1, 2  where the segment ends
    --   base + 3, 4  how long it is
    --   base + 5, 6  how far ahead the time may lie while no request waits; -1 if only the last segment is refunded
    --   base + 7     the denominator
    refund = function(key, parameters, base)
      local micros, numerator, tail = time_read(key, parameters, base)
      if not micros then return end
      local mark, mark_numerator = tonumber(argv[base + 1]), tonumber(argv[base + 2])
      local price, price_numerator = tonumber(argv[base + 3]), tonumber(argv[base + 4])
      local waits = time_earlier(tonumber(argv[base + 5]), tonumber(argv[base + 6]), micros - now, numerator)
      local is_last = micros == mark and numerator == mark_numerator
      local remaining, remaining_numerator = micros - now, numerator
      if time_earlier(mark, mark_numerator, micros, numerator) then
        remaining, remaining_numerator = mark - now, mark_numerator
      end
      if time_earlier(price, price_numerator, remaining, remaining_numerator) then
        remaining, remaining_numerator = price, price_numerator
      end
      if not time_earlier(0, 0, remaining, remaining_numerator) or (waits and not is_last) then return true end
      micros, numerator = micros - remaining, numerator - remaining_numerator
      if numerator < 0 then micros, numerator = micros - 1, numerator + argv[base + 7] end
      return true, nil, time_text(parameters, micros, numerator, tail)
    end,

    -- What to write for a time that was set back.
    repair = function(key, parameters, base)
      return time_text(parameters, time_read(key, parameters, base))
    end,
  }
end
