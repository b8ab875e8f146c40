-- Token bucket: the moment at which the bucket will be full again (lib/gcra.lua), and what is out on lease.
--
-- KEYS   the moment
-- ARGV   take, charge:  1, 2  what the cost takes, as a time: microseconds, numerator
--                       3     the denominator
--        take:          4, 5  how far ahead the moment may lie after it: the capacity and the patience, or -1 for a cost
--                             above the capacity
--        refund:        as lib/gcra.lua tells
--        lease:         1     the denominator
--                       2, 3  the capacity
--                       4, 5  the id of the new lease, and for how many microseconds it is
--                       6     how many leases are over, and for each of them
--                               its id, and what was spent of it, as a time: microseconds, numerator
--                       then  how many sizes would do, and for each of them, the largest first
--                               how many permits, and as a time: microseconds, numerator
-- seen   microseconds, numerator. While something is out on lease, with what is out added, and after them the same without,
--        from which a receipt is reckoned; of a lease, after them, how many permits it has, 0 if there is none
--
-- Leases. An instance takes a block of permits at once, and spends them without asking. Until it says what it spent, or
-- the lease ends, the block counts as used, wherever the moment is: else a bucket that refills meanwhile and the block
-- together would be more than the capacity. So the block is not added to the moment, which time wears down, but to where
-- the moment is looked at; it goes into the moment when it is over. What an instance never tells of counts as spent.
-- As text, in front of the tail: ID:MICROSECONDS:NUMERATOR:END, a comma between two.

-- What has to do with leases, and what is needed seldom: defined only then, since a function that is defined costs.
local function seldom()
  -- No lease is longer; one that seems to be was given by a clock that has since been put back.
  local LONGEST = 60000000

  -- The moment with the leases that have ended in it, the time of those that have not, and when the last of them ends.
  local function settled(micros, numerator, tail, denominator)
    local leases, since = match(tail, '^(%S+) (%S+)$')
    if not leases then return micros, numerator, 0, 0, {}, tail, 0 end
    local out, out_numerator, current, last = 0, 0, {}, 0
    for id, time, part, ends in string.gmatch(leases, '([^:,]+):(%d+):(%d+):(%d+)') do
      time, part, ends = tonumber(time), tonumber(part), tonumber(ends)
      if ends <= now or ends > now + LONGEST then
        ends = ends <= now and ends or now
        if micros < ends then micros, numerator = ends, 0 end
        micros, numerator = moment_add(micros, numerator, time, part, denominator)
      else
        out, out_numerator = moment_add(out, out_numerator, time, part, denominator)
        current[#current + 1] = { id, time, part, ends }
        if ends > last then last = ends end
      end
    end
    return micros, numerator, out, out_numerator, current, since, last
  end

  -- What to write, and when it is as good as none: when the last lease has ended and what it took has come back.
  local function written(parameters, micros, numerator, out, out_numerator, current, since, last)
    if #current == 0 then return moment_written(parameters, micros, numerator, since) end
    local texts = {}
    for index, lease in ipairs(current) do
      texts[index] = format('%s:%.0f:%.0f:%.0f', lease[1], lease[2], lease[3], lease[4])
    end
    local text = moment_written(parameters, micros, numerator, table.concat(texts, ',') .. ' ' .. since)
    return text, (micros > last and micros or last) + out + 2
  end

  local functions = moment_seldom()
  local refund = functions.refund
  functions.settled, functions.written = settled, written

  function functions.refund(key, parameters, place)
    local micros, numerator, tail = moment_read(key, parameters, place)
    if micros and find(tail, ' ', 1, true) then
      -- Somebody waits if the moment and what is out lie further ahead than the capacity.
      local denominator, out, out_numerator = tonumber(argv[place + 7]), 0, 0
      micros, numerator, out, out_numerator = settled(micros, numerator, tail, denominator)
      local is_last = micros == tonumber(argv[place + 1]) and numerator == tonumber(argv[place + 2])
      local whole, whole_numerator = moment_add(micros, numerator, out, out_numerator, denominator)
      local waits = moment_earlier(tonumber(argv[place + 5]), tonumber(argv[place + 6]), whole - now, whole_numerator)
      if waits and not is_last then return true end
    end
    local done, _, text, fresh_at = refund(key, parameters, place)
    if not text then return done end
    local micros, numerator, _, tail = match(text, '^(%-?%d+) (%d+) (%d+) (.+)$', #parameters + 2)
    if not match(tail, ' ') then return done, nil, text, fresh_at end
    return done, nil, written(parameters, settled(tonumber(micros), tonumber(numerator), tail, tonumber(argv[place + 7])))
  end

  function functions.mend(key, parameters, place)
    local micros, numerator, tail = moment_read(key, parameters, place)
    return written(parameters, settled(micros, numerator, tail, tonumber(argv[place + 3])))
  end

  function functions.lease(key, parameters, place)
    local denominator = tonumber(argv[place + 1])
    local micros, numerator, tail = moment_read(key, parameters, place)
    if not micros then return end
    local _, current, since
    micros, numerator, _, _, current, since = settled(micros, numerator, tail, denominator)
    if micros < now then micros, numerator = now, 0 end
    local over, at = {}, place + 6
    for _ = 1, tonumber(argv[at]) do
      over[argv[at + 1]] = { tonumber(argv[at + 2]), tonumber(argv[at + 3]) }
      at = at + 3
    end
    local out, out_numerator, last, kept = 0, 0, 0, {}
    for _, lease in ipairs(current) do
      local spent = over[lease[1]]
      if spent then
        micros, numerator = moment_add(micros, numerator, spent[1], spent[2], denominator)
      else
        out, out_numerator = moment_add(out, out_numerator, lease[2], lease[3], denominator)
        kept[#kept + 1] = lease
        if lease[4] > last then last = lease[4] end
      end
    end
    local size = 0
    at = at + 1
    local used, used_numerator = moment_add(micros, numerator, out, out_numerator, denominator)
    for _ = 1, tonumber(argv[at]) do
      local time, part = tonumber(argv[at + 2]), tonumber(argv[at + 3])
      -- Twice the block must fit, so that one instance never takes all that is left.
      local after, after_numerator = moment_add(used, used_numerator, time, part, denominator)
      after, after_numerator = moment_add(after, after_numerator, time, part, denominator)
      if not moment_earlier(tonumber(argv[place + 2]), tonumber(argv[place + 3]), after - now, after_numerator) then
        size = tonumber(argv[at + 1])
        out, out_numerator = moment_add(out, out_numerator, time, part, denominator)
        kept[#kept + 1] = { argv[place + 4], time, part, now + tonumber(argv[place + 5]) }
        if kept[#kept][4] > last then last = kept[#kept][4] end
        break
      end
      at = at + 3
    end
    local shown, shown_numerator = moment_add(micros, numerator, out, out_numerator, denominator)
    return true, { shown, shown_numerator, size }, written(parameters, micros, numerator, out, out_numerator, kept, since, last)
  end

  return functions
end

-- Moves the moment by the time of a cost: a take only if that leaves it within the room, a charge anyway.
local function move(key, parameters, place)
  local micros, numerator, tail = moment_read(key, parameters, place)
  if not micros then return end
  local denominator = tonumber(argv[place + 3])
  local lib, out, out_numerator, current, since, last
  if find(tail, ' ', 1, true) then
    lib = seldom()
    micros, numerator, out, out_numerator, current, since, last = lib.settled(micros, numerator, tail, denominator)
  end
  local seen = { micros, numerator }
  if micros < now then micros, numerator = now, 0 end
  if lib and #current > 0 then
    local shown, shown_numerator = moment_add(micros, numerator, out, out_numerator, denominator)
    seen = { shown, shown_numerator, micros, numerator }
  end
  micros, numerator =
    moment_add(micros, numerator, tonumber(argv[place + 1]), tonumber(argv[place + 2]), denominator)
  if op == 'take' then
    local whole, whole_numerator = micros, numerator
    if lib and #current > 0 then
      whole, whole_numerator = moment_add(micros, numerator, out, out_numerator, denominator)
    end
    if moment_earlier(tonumber(argv[place + 4]), tonumber(argv[place + 5]), whole - now, whole_numerator) then
      return false, seen
    end
  end
  if lib then
    return true, seen, lib.written(parameters, micros, numerator, out, out_numerator, current, since, last)
  end
  return true, seen, moment_written(parameters, micros, numerator, tail)
end

return { take = move, charge = move, seldom = seldom }
