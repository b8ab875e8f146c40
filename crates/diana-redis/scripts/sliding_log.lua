-- Sliding log: the times of grants.
--
-- KEYS   a sorted set (lib/set.lua). Each entry is a member TOTAL:HELD whose score is its time in microseconds: all
--        permits granted up to and including this time, and those granted at it
-- ARGV   take, charge:  1  the cost
--                       2  the maximum number of entries
--                       3  the longest window in microseconds
--                       4  the number of windows; charge: unused
--                       5, 6, 7, 8...  for each of them its length in microseconds, and its limit
--        refund:        1  the cost
--                       2  the time of the grant
--                       3  the longest window in microseconds
-- seen   for each window: the used permits, the time of the oldest entry in it (0 if there is none), and that of the
--        entry whose expiry frees enough permits for the cost (0 if enough are free already, or never will be)
--
-- Why running totals: the used permits of a window are then the difference of two members, and a binary search finds
-- when enough will have expired. So neither a grant nor a denial iterates over the log, however long it is, and only a
-- few numbers are returned. In exchange, a refund iterates over the entries after it, which are few if it comes soon.
--
-- An entry later than now was written before the clock was set back (after a failover). It counts as at now, and is
-- rewritten that way.

-- An entry: time, total, held, and the member itself. Nil if `reply` has none.
local function entry_of(reply)
  local total, held = match(reply[1] or '', '^(%d+):(%d+)$')
  if total then return tonumber(reply[2]), tonumber(total), tonumber(held), reply[1] end
end

local function at_rank(key, rank)
  return entry_of(redis.call('ZRANGE', key, rank, rank, 'WITHSCORES'))
end

-- The first entry in a range of scores, whose ends are text.
local function first_in(key, from, to)
  return entry_of(redis.call('ZRANGEBYSCORE', key, from, to, 'WITHSCORES', 'LIMIT', 0, 1))
end

-- The time of the first entry whose total is at least `enough`, where `member` has less and the newest has as much.
local function reaching(key, member, enough)
  local less, as_much = redis.call('ZRANK', key, member), redis.call('ZCARD', key) - 1
  local found = at_rank(key, as_much)
  while as_much - less > 1 do
    local middle = floor((less + as_much) / 2)
    local time, total = at_rank(key, middle)
    if total < enough then
      less = middle
    else
      as_much, found = middle, time
    end
  end
  return found
end

-- Rewrites all entries with totals that begin at the first one; returns the difference. Once in 2^53 permits.
local function renumber(key)
  local _, total, held = at_rank(key, 1)
  local less = total - held
  local all = redis.call('ZRANGE', key, 1, -1, 'WITHSCORES')
  redis.call('ZREMRANGEBYRANK', key, 1, -1)
  for index = 1, #all, 2 do
    local time
    time, total, held = entry_of({ all[index], all[index + 1] })
    redis.call('ZADD', key, format('%.0f', time), format('%.0f:%.0f', total - less, held))
  end
  return less
end

-- Returns a function that records `permits` at now, after removing the entries outside of the longest window, in at
-- most `max_entries` entries.
local function recording(head, base, permits, max_entries)
  local longest = tonumber(argv[base + 3])
  return function(key)
    redis.call('ZREMRANGEBYSCORE', key, '(-inf', format('%.0f', now - longest))
    local newest, total, held, member = at_rank(key, -1)
    if newest and total > MAX_PERMITS - permits then
      total = total - renumber(key)
      permits = math.min(permits, MAX_PERMITS - total)
      newest, total, held, member = at_rank(key, -1)
    end
    if not newest then
      total, held = 0, 0
    elseif newest >= now then
      local from = format('%.0f', now)
      local _, first_total, first_held = first_in(key, from, '+inf')
      held = total - (first_total - first_held)
      redis.call('ZREMRANGEBYSCORE', key, from, '+inf')
    elseif redis.call('ZCARD', key) - 1 >= max_entries then
      -- The newest entry is merged into this one, and expires later for it.
      redis.call('ZREM', key, member)
    else
      held = 0
    end
    if held + permits > 0 then
      local entry = format('%.0f:%.0f', total + permits, held + permits)
      redis.call('ZADD', key, '-inf', head, format('%.0f', now), entry)
      set.expire(key, now + longest)
    end
  end
end

return {
  take = function(key, parameters, base)
    local head = set.head(key, parameters, base)
    if not head then return end
    local cost, granted, seen = tonumber(argv[base + 1]), true, {}
    local newest, newest_total = at_rank(key, -1)
    if newest and newest > now then clock_set_back = true end
    for window = base + 5, base + 3 + 2 * argv[base + 4], 2 do
      local length, limit = tonumber(argv[window]), tonumber(argv[window + 1])
      local time, total, held, member = first_in(key, format('(%.0f', now - length), '+inf')
      local used, oldest, freeing = 0, 0, 0
      if time then used, oldest = newest_total - (total - held), math.min(time, now) end
      if used > limit - cost then
        granted = false
        if cost <= limit then
          local enough = total - held + used - (limit - cost)
          freeing = math.min(total < enough and reaching(key, member, enough) or time, now)
        end
      end
      local count = #seen
      seen[count + 1], seen[count + 2], seen[count + 3] = used, oldest, freeing
    end
    -- As long as asks are granted there is room for another entry.
    return granted, seen, granted and recording(head, base, cost, math.huge) or nil
  end,

  charge = function(key, parameters, base)
    local head = set.head(key, parameters, base)
    if not head then return end
    return true, nil, recording(head, base, tonumber(argv[base + 1]), tonumber(argv[base + 2]))
  end,

  repair = function(key, parameters, base)
    return recording(set.head(key, parameters, base), base, 0, math.huge)
  end,

  refund = function(key, parameters, base)
    if not set.head(key, parameters, base) then return end
    local granted_at, longest = argv[base + 2], tonumber(argv[base + 3])
    local _, _, held, member = first_in(key, granted_at, granted_at)
    if not held or now - granted_at >= longest then return true end
    return true, nil, function()
      local returned = math.min(held, tonumber(argv[base + 1]))
      local rank = redis.call('ZRANK', key, member)
      local later = redis.call('ZRANGE', key, rank, -1, 'WITHSCORES')
      redis.call('ZREMRANGEBYRANK', key, rank, -1)
      for index = 1, #later, 2 do
        local time, total, remaining = entry_of({ later[index], later[index + 1] })
        if index == 1 then remaining = remaining - returned end
        if remaining > 0 then
          redis.call('ZADD', key, format('%.0f', time), format('%.0f:%.0f', total - returned, remaining))
        end
      end
      local newest = at_rank(key, -1)
      if newest then
        set.expire(key, newest + longest)
      else
        redis.call('DEL', key)
      end
    end
  end,
}
