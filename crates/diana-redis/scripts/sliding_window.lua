-- Sliding window: the buckets in use with their counts.
--
-- KEYS   PARAMETERS BUCKET:COUNT,BUCKET:COUNT... SINCE, oldest first, where a bucket's number is its time divided by
--        its width. Buckets without grants are omitted. The newest is stored even if all of it was refunded, as in
--        diana-core's ring.
-- ARGV   take, charge:  1  the cost
--                       2  the limit; charge: unused
--        refund:        1  the cost
--                       2  the bucket that it was taken from
--        3     how many buckets count: those of the window, and one more if the oldest, partially covered one counts
--        4, 5  the width of a bucket in microseconds, in lowest terms: numerator, denominator
--        6     1 if that oldest one counts in proportion to the part that the window covers, else 0
-- seen   the buckets as they are written, empty if there are none
--
-- A newest bucket after the current one was written before the clock was set back (after a failover). Then all of them
-- are set back likewise, so that the newest is the current one.
--
-- Why all buckets in one string, and not a hash or a stored sum: expired buckets must be subtracted from the sum, so
-- all buckets must be read anyway. A window of more than 1,024 buckets is not supported.

-- The bucket of `now`. Each intermediate number is whole and below 2^53, where the quotient of a division is never
-- rounded up to the next whole number.
local function current_bucket(base)
  local numerator, denominator = tonumber(argv[base + 4]), tonumber(argv[base + 5])
  local rest = fmod(now, numerator)
  return (now - rest) / numerator * denominator + floor(rest * denominator / numerator)
end

-- `count × covered / width`, rounded up, in whole numbers. If the product exceeds 2^53 it is divided bit by bit.
local function share(count, covered, width)
  if count * covered < MAX_PERMITS then
    local rest = fmod(count * covered, width)
    return (count * covered - rest) / width + (rest > 0 and 1 or 0)
  end
  local bit, quotient, rest = 1, 0, 0
  while bit * 2 <= count do bit = bit * 2 end
  while bit >= 1 do
    quotient, rest = quotient * 2, rest * 2
    if count >= bit then count, rest = count - bit, rest + covered end
    while rest >= width do quotient, rest = quotient + 1, rest - width end
    bit = bit / 2
  end
  return quotient + (rest > 0 and 1 or 0)
end

-- The weighted count of the oldest bucket, which a window that ends now covers partially.
local function weighted(count, base)
  local numerator, denominator = tonumber(argv[base + 4]), tonumber(argv[base + 5])
  local into = fmod(fmod(now, numerator) * denominator, numerator)
  return share(count, numerator - into, numerator)
end

-- The first microsecond at which `bucket` no longer counts.
local function leaves(bucket, base)
  local numerator, denominator = tonumber(argv[base + 4]), tonumber(argv[base + 5])
  local after = bucket + tonumber(argv[base + 3])
  local rest = fmod(after, denominator)
  return math.min((after - rest) / denominator * numerator + ceil(rest * numerator / denominator), END)
end

local function buckets_text(buckets, counts)
  local texts = {}
  for index, bucket in ipairs(buckets) do
    if counts[index] > 0 or index == #buckets then
      texts[#texts + 1] = format('%.0f:%.0f', bucket, counts[index])
    end
  end
  return table.concat(texts, ',')
end

-- The window at `key` as a table: the current bucket, the buckets that are still in the window and their counts, the
-- used permits, the text that was seen, and the configuration of the parameters. Nil if the parameters differ.
local function read(key, parameters, base)
  local raw = redis.pcall('GET', key)
  local current, buckets, counts, used = current_bucket(base), {}, {}, 0
  local window = { current = current, buckets = buckets, counts = counts, seen = '', since = argv[base - 1] }
  if raw then
    if type(raw) == 'table' or sub(raw, 1, #parameters + 1) ~= parameters .. ' ' then return end
    window.seen, window.since = match(raw, '^(%S+) (%S+)$', #parameters + 2)
    local newest = tonumber(match(window.seen or '', '(%d+):%d+$'))
    if not newest then return end
    local back = math.max(newest - current, 0)
    local last_expired = current - tonumber(argv[base + 3])
    local part = argv[base + 6] == '1' and last_expired + 1
    for bucket, count in string.gmatch(window.seen, '(%d+):(%d+)') do
      bucket, count = bucket - back, tonumber(count)
      if bucket > last_expired then
        buckets[#buckets + 1], counts[#counts + 1] = bucket, count
        used = used + (bucket == part and weighted(count, base) or count)
      end
    end
    if back > 0 then window.seen, clock_set_back = buckets_text(buckets, counts), true end
  end
  window.used = used
  return window
end

-- What to write for `window`: a text and when it equals a new key, or false.
local function written(window, parameters, base)
  for index = #window.buckets, 1, -1 do
    if window.counts[index] > 0 then
      local buckets = buckets_text(window.buckets, window.counts)
      return format('%s %s %s', parameters, buckets, window.since), leaves(window.buckets[index], base)
    end
  end
  return false
end

local function add(window, parameters, base, cost)
  local last = #window.buckets
  if window.buckets[last] ~= window.current then
    last = last + 1
    window.buckets[last], window.counts[last] = window.current, 0
  end
  window.counts[last] = math.min(window.counts[last] + cost, MAX_PERMITS)
  return written(window, parameters, base)
end

return {
  take = function(key, parameters, base)
    local window = read(key, parameters, base)
    if not window then return end
    local cost, limit = tonumber(argv[base + 1]), tonumber(argv[base + 2])
    local seen = { window.seen }
    if window.used > limit - cost then return false, seen end
    return true, seen, add(window, parameters, base, cost)
  end,

  charge = function(key, parameters, base)
    local window = read(key, parameters, base)
    if not window then return end
    return true, nil, add(window, parameters, base, tonumber(argv[base + 1]))
  end,

  repair = function(key, parameters, base)
    return written(read(key, parameters, base), parameters, base)
  end,

  refund = function(key, parameters, base)
    local window = read(key, parameters, base)
    if not window then return end
    local newest = window.buckets[#window.buckets]
    if not newest then return true end
    -- After a change of buckets, the bucket that was current then may have been migrated to a narrower one.
    local bucket = math.min(tonumber(argv[base + 2]), newest)
    for index, other in ipairs(window.buckets) do
      if other == bucket and window.counts[index] > 0 then
        window.counts[index] = math.max(window.counts[index] - tonumber(argv[base + 1]), 0)
        return true, nil, written(window, parameters, base)
      end
    end
    return true
  end,
}
