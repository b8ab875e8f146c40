-- Concurrency: a lease for each grant, which expires, so that the permits of a crashed gateway are released.
--
-- KEYS   a sorted set (lib/set.lua) of
--          TICKET:COST  a lease; its score is when it ends, in microseconds
--          used         its score is the permits of all leases, as a negative number
--          unit         its score is the recent duration of a request, in nanoseconds, as a negative number
-- ARGV   1  TICKET:COST
--        2  the cost
--        take, charge:  3  how many may be in flight without a wait
--                       4  how many may be in flight at all
--                       5  the maximum wait in nanoseconds, less than 2^53; charge: unused
--                       6  how long a lease lasts, in microseconds
--        refund:        3, 4  when the request proceeded: microseconds, and nanoseconds of one
--        extend:        6  how long the lease lasts from now on, in microseconds
--        7  the assumed duration of a request until the first one finishes, in nanoseconds
-- seen   the permits in flight, the recent duration of a request
--
-- An expired lease is no longer counted, and is removed by the next grant. Until then readers subtract it; they need
-- not read the other leases, since their sum is stored. The refund of a lease that no longer exists, because it has
-- expired or because the key was reset, has no effect: its permits are in use by other requests, or free already.
--
-- A charge is a lease that is never refunded.
--
-- If the clock is set back (after a failover), leases last longer by the difference.

-- The head, the permits in flight, and the unit; nil if the parameters differ.
local function read(key, parameters, base)
  local head = set.head(key, parameters, base)
  if not head then return end
  local scores = redis.call('ZMSCORE', key, 'used', 'unit')
  local used, unit = 0 - (scores[1] or 0), 0 - (scores[2] or 0)
  if used > 0 then
    for _, lease in ipairs(redis.call('ZRANGEBYSCORE', key, '(0', format('%.0f', now))) do
      used = used - match(lease, ':(%d+)$')
    end
  end
  -- When the last request has finished, the unit is reset.
  if used <= 0 then used, unit = 0, tonumber(argv[base + 7]) end
  return head, used, unit
end

local function write(key, head, used, unit)
  redis.call('ZREMRANGEBYSCORE', key, '(0', format('%.0f', now))
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  if not last or tonumber(last) <= 0 then
    redis.call('DEL', key)
    return
  end
  redis.call('ZADD', key, '-inf', head, format('-%.0f', used), 'used', format('-%.0f', unit), 'unit')
  set.expire(key, tonumber(last))
end

return {
  take = function(key, parameters, base)
    local head, used, unit = read(key, parameters, base)
    if not head then return end
    local cost, limit, capacity = tonumber(argv[base + 2]), tonumber(argv[base + 3]), tonumber(argv[base + 4])
    local seen = { used, format('%.0f', unit) }
    if used > capacity - cost then return false, seen end
    local wait = unit * floor((used + cost - 1) / limit)
    if wait > tonumber(argv[base + 5]) then return false, seen end
    return true, seen, function()
      local ends = math.min(now + ceil(wait / 1000) + tonumber(argv[base + 6]), END)
      -- An existing ticket was taken before, by a call whose answer was lost.
      if redis.call('ZADD', key, format('%.0f', ends), argv[base + 1]) == 0 then cost = 0 end
      write(key, head, used + cost, unit)
    end
  end,

  charge = function(key, parameters, base)
    local head, used, unit = read(key, parameters, base)
    if not head then return end
    local cost = math.min(tonumber(argv[base + 2]), MAX_PERMITS - used)
    if cost == 0 then return true end
    return true, nil, function()
      local ends = math.min(now + tonumber(argv[base + 6]), END)
      local lease = format('%s:%.0f', match(argv[base + 1], '^(%x+)'), cost)
      redis.call('ZADD', key, format('%.0f', ends), lease)
      write(key, head, used + cost, unit)
    end
  end,

  -- Extends the lease of a request that is still running.
  extend = function(key, parameters, base)
    local head = set.head(key, parameters, base)
    if not head then return end
    local ends = redis.call('ZSCORE', key, argv[base + 1])
    if not ends or tonumber(ends) <= now then return true end
    return true, nil, function()
      redis.call('ZADD', key, format('%.0f', math.min(now + tonumber(argv[base + 6]), END)), argv[base + 1])
      set.expire(key, tonumber(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]))
    end
  end,

  refund = function(key, parameters, base)
    local head, used, unit = read(key, parameters, base)
    if not head then return end
    local ends = redis.call('ZSCORE', key, argv[base + 1])
    if not ends or tonumber(ends) <= now then return true end
    used = used - tonumber(argv[base + 2])
    if used <= 0 then return true, nil, false end
    local latency = (now - argv[base + 3]) * 1000 - argv[base + 4]
    -- A request that finished no later than it was admitted was never served, and is not a sample of the duration.
    if latency > 0 then unit = math.min(floor((latency + unit) / 2), MAX_PERMITS - 1) end
    return true, nil, function()
      redis.call('ZREM', key, argv[base + 1])
      write(key, head, used, unit)
    end
  end,
}
