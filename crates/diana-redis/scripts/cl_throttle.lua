-- Decides one CL.THROTTLE call: adds its cost to the debt of a key, unless that would exceed the span of the call.
--
-- KEYS[1]   the debt: SECONDS NANOSECONDS of the last change, and SECONDS NANOSECONDS of the debt then
-- ARGV[1,2] now, in seconds and nanoseconds since 1970; empty: Redis's TIME
-- ARGV[3]   the deadline, in microseconds since 1970; empty: none
-- ARGV[4,5] the span: seconds, nanoseconds
-- ARGV[6,7] the cost: seconds, nanoseconds; of a negative cost the nanoseconds count up from the lower second
-- ARGV[8,9] what was granted without Redis, and is charged unconditionally before: seconds, nanoseconds
-- returns   now in microseconds; 1 if it is limited, else 0; the debt before: seconds, nanoseconds
--           or now and 'late', if the script ran after the deadline
--
-- A number is a double, in which a date has no nanoseconds. So times are two numbers, seconds and nanoseconds, and
-- everything is exact. As in redis-cell a key expires in whole milliseconds, truncated; Redis does not store a key that
-- expires in less than one, so that is checked here as well.
local floor, format, match = math.floor, string.format, string.match
local key, argv = KEYS[1], ARGV
local seconds, nanos = tonumber(argv[1]), tonumber(argv[2])
local caller_time = seconds ~= nil
if not caller_time then
  local time = redis.call('TIME')
  seconds, nanos = tonumber(time[1]), time[2] * 1000
end
local now = seconds * 1000000 + floor(nanos / 1000)
if argv[3] ~= '' and now > tonumber(argv[3]) then
  return { now, 'late' }
end

-- A pair of seconds and nanoseconds with fewer than 10^9 nanoseconds, at least 0.
local function normal(seconds, nanos)
  if nanos < 0 then
    seconds, nanos = seconds - 1, nanos + 1000000000
  elseif nanos >= 1000000000 then
    seconds, nanos = seconds + 1, nanos - 1000000000
  end
  if seconds < 0 then return 0, 0 end
  return seconds, nanos
end

local function millis(seconds, nanos)
  return seconds * 1000 + floor(nanos / 1000000)
end

local present = millis(seconds, nanos)
local debt, debt_nanos, clock_set_back = 0, 0, false
local raw = redis.call('GET', key)
if raw then
  local at, at_nanos, left, left_nanos = match(raw, '^(%d+) (%d+) (%d+) (%d+)$')
  if not at then return redis.error_reply('ERR not a debt') end
  at, at_nanos, left, left_nanos = tonumber(at), tonumber(at_nanos), tonumber(left), tonumber(left_nanos)
  if seconds < at or (seconds == at and nanos < at_nanos) then
    -- Written before the clock was set back, after a failover: nothing has been paid off yet.
    debt, debt_nanos, clock_set_back = left, left_nanos, true
  elseif present <= millis(at, at_nanos) + millis(left, left_nanos) then
    debt, debt_nanos = normal(left - (seconds - at), left_nanos - (nanos - at_nanos))
  end
end
local owed = argv[8] ~= '0' or argv[9] ~= '0'
if owed then debt, debt_nanos = normal(debt + argv[8], debt_nanos + argv[9]) end

local span, span_nanos = tonumber(argv[4]), tonumber(argv[5])
local after, after_nanos = normal(debt + argv[6], debt_nanos + argv[7])
local limited = after > span or (after == span and after_nanos > span_nanos)
local keep, keep_nanos = after, after_nanos
if limited then keep, keep_nanos = debt, debt_nanos end
if not limited or owed or clock_set_back then
  if keep == 0 and keep_nanos == 0 then
    if raw then redis.call('DEL', key) end
  else
    local value = format('%.0f %.0f %.0f %.0f', seconds, nanos, keep, keep_nanos)
    if caller_time then
      redis.call('SET', key, value, 'PX', '3600000')
    else
      local expires = present + math.max(millis(keep, keep_nanos), 1)
      redis.call('SET', key, value, 'PXAT', format('%.0f', expires))
    end
  end
end
return { now, limited and 1 or 0, debt, debt_nanos }
