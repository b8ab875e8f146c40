-- Fixed window: the end of the current window, and the count.
--
-- KEYS   the window, as text: PARAMETERS ENDS COUNT SINCE, where ENDS is in microseconds, rounded up
-- ARGV   take, charge:  1     the cost
--                       2     the limit; charge: unused
--                       3     what starts a window:
--                     clock   4, 5  its length, counted from 1970: microseconds and a denominator
--                     first   4     its length, counted from its first request: microseconds, rounded up
--                     dates   4     a time from which on these are all the windows' ends:
--                             5...  the ends, in order
--        refund:        1     the cost
--                       2     the end of the window of its grant
--                       3     the creation time of the state that it was taken from
-- seen   the window's end and count, both 0 if there is no current window, and the creation time of the state
--
-- Only Rust can compute dates, but it does not know Redis's time: so it sends all dates that may be needed. If none of
-- them applies, the script returns an error, since the cost would be charged to the wrong window.
--
-- A window that ends later than one that begins now was started before the clock was set back (after a failover): it
-- ends with that one, and its count stays.

-- The end of a window that begins now.
local function window_end(base)
  local start = argv[base + 3]
  if start == 'first' then
    return now + argv[base + 4]
  elseif start == 'clock' then
    local length, parts = tonumber(argv[base + 4]), tonumber(argv[base + 5])
    local rest = fmod(now, length)
    -- The windows of `length / parts` that have ended since the last multiple of `length`. Both dividends are less than
    -- 2^53, where no quotient is rounded up or down to a whole number.
    local over = floor(rest * parts / length)
    return now - rest + ceil((over + 1) * length / parts)
  end
  if now >= tonumber(argv[base + 4]) then
    for index = base + 5, base + argv[base] do
      local ends = tonumber(argv[index])
      if ends > now then return ends end
    end
  end
end

local function read(key, parameters, base)
  local text = fields(key, parameters)
  if text == nil then return end
  if not text then return 0, 0, newborn(base) end
  local ends, count, since = match(text, '^(%d+) (%d+) (%S+)$')
  if not ends then return end
  return tonumber(ends), tonumber(count), since
end

local function current(key, parameters, base)
  local ends, count, since = read(key, parameters, base)
  if not ends then return end
  local latest = window_end(base)
  if not latest then
    return nil, redis.error_reply('ERR the clocks of Redis and the gateway differ by more than a day')
  end
  latest = math.min(latest, END)
  if count == 0 or now >= ends then return { 0, 0, born(since) }, latest, 0, since end
  if ends > latest then ends, clock_set_back = latest, true end
  return { ends, count, born(since) }, ends, count, since
end

local function written(parameters, seen, ends, count, since)
  return true, seen, format('%s %.0f %.0f %s', parameters, ends, count, since), ends
end

return {
  take = function(key, parameters, base)
    local seen, ends, count, since = current(key, parameters, base)
    if not seen then return nil, ends end
    local cost = tonumber(argv[base + 1])
    -- Not `count + cost > limit`: the sum might be rounded down.
    if cost > argv[base + 2] - count then return false, seen end
    return written(parameters, seen, ends, count + cost, since)
  end,

  charge = function(key, parameters, base)
    local seen, ends, count, since = current(key, parameters, base)
    if not seen then return nil, ends end
    return written(parameters, seen, ends, math.min(count + argv[base + 1], MAX_PERMITS), since)
  end,

  repair = function(key, parameters, base)
    local _, ends, count, since = current(key, parameters, base)
    return select(3, written(parameters, nil, ends, count, since))
  end,

  refund = function(key, parameters, base)
    local ends, count, since = read(key, parameters, base)
    if not ends then return end
    if count == 0 or now >= ends or ends ~= tonumber(argv[base + 2]) or born(since) ~= tonumber(argv[base + 3]) then
      return true
    end
    count = count - argv[base + 1]
    -- As if there had been no request: a window that its first request started is removed.
    if count <= 0 then return true, nil, false end
    return written(parameters, nil, ends, count, since)
  end,
}
