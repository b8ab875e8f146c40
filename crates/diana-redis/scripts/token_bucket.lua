-- Token bucket: the time at which the bucket will be full again (lib/gcra.lua), and the leased permits.
--
-- KEYS   the time
-- ARGV   take, charge:  1, 2  the cost as a duration: microseconds, numerator
--                       3     the denominator
--        take:          4, 5  how far ahead the time may lie after it: the capacity and the maximum wait, or -1 for a
--                             cost above the capacity
--                       6     microseconds for which the key is stored at least; may be missing
--        refund:        see lib/gcra.lua
--        lease:         1     the denominator
--                       2, 3  the capacity
--                       4, 5  the id of the new lease, and its duration in microseconds
--                       6     how many leases have ended, and for each of them
--                               its id, and the spent part of it, as a duration: microseconds, numerator
--                       then  the number of possible sizes, and for each of them, the largest first
--                               how many permits, and as a duration: microseconds, numerator
-- seen   microseconds, numerator. While permits are leased, with the leased ones added, and after them the same
--        without, from which a receipt is computed; for a lease, after them, its number of permits, 0 if there is none
--
-- Leases. An instance takes a block of permits at once, and spends them without a round trip. Until it reports the
-- spent permits, or the lease ends, the block counts as used, independently of the stored time: otherwise the refilled
-- bucket and the block together would exceed the capacity. So the block is not added to the stored time, which passes,
-- but to each reading of it; it is added to the stored time when the lease ends. A block that is never reported counts
-- as spent. As text, in front of the tail: ID:MICROSECONDS:NUMERATOR:END, a comma between two.

-- Leases, and rarely used functions: defined only when needed, since each function definition costs.
local function rare()
  -- No lease is longer; one that seems to be was granted before the clock was set back.
  local MAX_LEASE = 60000000

  -- The time including the leases that have ended, the duration of those that have not, and when the last of them ends.
  local function settled(micros, numerator, tail, denominator)
    local leases, since = match(tail, '^(%S+) (%S+)$')
    if not leases then return micros, numerator, 0, 0, {}, tail, 0 end
    local out, out_numerator, current, last = 0, 0, {}, 0
    for id, time, part, ends in string.gmatch(leases, '([^:,]+):(%d+):(%d+):(%d+)') do
      time, part, ends = tonumber(time), tonumber(part), tonumber(ends)
      if ends <= now or ends > now + MAX_LEASE then
        ends = ends <= now and ends or now
        if micros < ends then micros, numerator = ends, 0 end
        micros, numerator = time_add(micros, numerator, time, part, denominator)
      else
        out, out_numerator = time_add(out, out_numerator, time, part, denominator)
        current[#current + 1] = { id, time, part, ends }
        if ends > last then last = ends end
      end
    end
    return micros, numerator, out, out_numerator, current, since, last
  end

  -- What to write, and when it equals a new key: when the last lease has ended and its permits are refilled.
  local function written(parameters, micros, numerator, out, out_numerator, current, since, last)
    if #current == 0 then return time_text(parameters, micros, numerator, since) end
    local texts = {}
    for index, lease in ipairs(current) do
      texts[index] = format('%s:%.0f:%.0f:%.0f', lease[1], lease[2], lease[3], lease[4])
    end
    local text = time_text(parameters, micros, numerator, table.concat(texts, ',') .. ' ' .. since)
    return text, (micros > last and micros or last) + out + 2
  end

  local functions = time_rare()
  local refund = functions.refund
  functions.settled, functions.written = settled, written

  function functions.refund(key, parameters, base)
    local micros, numerator, tail = time_read(key, parameters, base)
    if micros and find(tail, ' ', 1, true) then
      -- A request waits if the time and the leased permits lie further ahead than the capacity.
      local denominator, out, out_numerator = tonumber(argv[base + 7]), 0, 0
      micros, numerator, out, out_numerator = settled(micros, numerator, tail, denominator)
      local is_last = micros == tonumber(argv[base + 1]) and numerator == tonumber(argv[base + 2])
      local whole, whole_numerator = time_add(micros, numerator, out, out_numerator, denominator)
      local waits = time_earlier(tonumber(argv[base + 5]), tonumber(argv[base + 6]), whole - now, whole_numerator)
      if waits and not is_last then return true end
    end
    local done, _, text, fresh_at = refund(key, parameters, base)
    if not text then return done end
    local micros, numerator, _, tail = match(text, '^(%-?%d+) (%d+) (%d+) (.+)$', #parameters + 2)
    if not match(tail, ' ') then return done, nil, text, fresh_at end
    micros, numerator = tonumber(micros), tonumber(numerator)
    return done, nil, written(parameters, settled(micros, numerator, tail, tonumber(argv[base + 7])))
  end

  function functions.repair(key, parameters, base)
    local micros, numerator, tail = time_read(key, parameters, base)
    return written(parameters, settled(micros, numerator, tail, tonumber(argv[base + 3])))
  end

  function functions.lease(key, parameters, base)
    local denominator = tonumber(argv[base + 1])
    local micros, numerator, tail = time_read(key, parameters, base)
    if not micros then return end
    local _, current, since
    micros, numerator, _, _, current, since = settled(micros, numerator, tail, denominator)
    if micros < now then micros, numerator = now, 0 end
    local over, at = {}, base + 6
    for _ = 1, tonumber(argv[at]) do
      over[argv[at + 1]] = { tonumber(argv[at + 2]), tonumber(argv[at + 3]) }
      at = at + 3
    end
    local out, out_numerator, last, live = 0, 0, 0, {}
    for _, lease in ipairs(current) do
      local spent = over[lease[1]]
      if spent then
        micros, numerator = time_add(micros, numerator, spent[1], spent[2], denominator)
      else
        out, out_numerator = time_add(out, out_numerator, lease[2], lease[3], denominator)
        live[#live + 1] = lease
        if lease[4] > last then last = lease[4] end
      end
    end
    local size = 0
    at = at + 1
    local used, used_numerator = time_add(micros, numerator, out, out_numerator, denominator)
    for _ = 1, tonumber(argv[at]) do
      local time, part = tonumber(argv[at + 2]), tonumber(argv[at + 3])
      -- Twice the block must fit, so that one instance never takes all remaining permits.
      local after, after_numerator = time_add(used, used_numerator, time, part, denominator)
      after, after_numerator = time_add(after, after_numerator, time, part, denominator)
      if not time_earlier(tonumber(argv[base + 2]), tonumber(argv[base + 3]), after - now, after_numerator) then
        size = tonumber(argv[at + 1])
        out, out_numerator = time_add(out, out_numerator, time, part, denominator)
        live[#live + 1] = { argv[base + 4], time, part, now + tonumber(argv[base + 5]) }
        if live[#live][4] > last then last = live[#live][4] end
        break
      end
      at = at + 3
    end
    local shown, shown_numerator = time_add(micros, numerator, out, out_numerator, denominator)
    local seen = { shown, shown_numerator, size }
    return true, seen, written(parameters, micros, numerator, out, out_numerator, live, since, last)
  end

  return functions
end

-- Advances the time by a cost: a take only if the result is within the capacity, a charge unconditionally.
local function move(key, parameters, base)
  local micros, numerator, tail = time_read(key, parameters, base)
  if not micros then return end
  local denominator = tonumber(argv[base + 3])
  local lib, out, out_numerator, current, since, last
  if find(tail, ' ', 1, true) then
    lib = rare()
    micros, numerator, out, out_numerator, current, since, last = lib.settled(micros, numerator, tail, denominator)
  end
  local seen = { micros, numerator }
  if micros < now then micros, numerator = now, 0 end
  if lib and #current > 0 then
    local shown, shown_numerator = time_add(micros, numerator, out, out_numerator, denominator)
    seen = { shown, shown_numerator, micros, numerator }
  end
  micros, numerator =
    time_add(micros, numerator, tonumber(argv[base + 1]), tonumber(argv[base + 2]), denominator)
  if op == 'take' then
    local whole, whole_numerator = micros, numerator
    if lib and #current > 0 then
      whole, whole_numerator = time_add(micros, numerator, out, out_numerator, denominator)
    end
    if time_earlier(tonumber(argv[base + 4]), tonumber(argv[base + 5]), whole - now, whole_numerator) then
      return false, seen
    end
  end
  local text, fresh_at
  if lib then
    text, fresh_at = lib.written(parameters, micros, numerator, out, out_numerator, current, since, last)
  else
    text, fresh_at = time_text(parameters, micros, numerator, tail)
  end
  if argv[base] == '6' then fresh_at = math.max(fresh_at, math.min(now + tonumber(argv[base + 6]), END)) end
  return true, seen, text, fresh_at
end

return { take = move, charge = move, rare = rare }
