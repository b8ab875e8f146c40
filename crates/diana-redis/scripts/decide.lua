-- Answers requests, each of them all or nothing.
--
-- KEYS     the key of each ask's state, all on one node, in the order of the asks
-- ARGV     those of head.lua, and from ARGV[4] on, for each request:
--            how many asks it has, and for each of them
--              algorithm    the name of the file
--              parameters   those under which the state must have been written
--              since        the configuration that these parameters are of, for a new state
--              n            how many arguments follow
--              ...          see the algorithm's file
-- returns  now, and for each request
--            1, seen...   if it was granted (all its states are written), or, of a charge or a refund, if it was done
--            0, seen...   if it was denied (none is written), or if this was a peek and it would have been
--            -i           if the state of its i-th ask was written under other parameters (nothing is written)
--            an error if one of its asks is invalid (nothing is written)
--          where `seen` are, for each ask, how many numbers follow, and the numbers of the state before. All of it in
--          one list: each nested list costs Redis about 0.6 µs.
--          Or now and 'late', if the script ran after the deadline.
--
-- An algorithm is a table of functions `take`, `charge` and `refund`, optionally `lease`, and `repair` if its states
-- can lie in the future, which returns what to write for a state that was corrected, as value and fresh_at. Rarely
-- used functions may be in the table that its function `rare` returns: Redis runs the whole script each time, and
-- each function definition costs about 0.2 µs. Each of the others gets the key, the parameters and the index in ARGV
-- before its own arguments, writes nothing, and returns
--   granted    false if the state does not allow it; nil if the parameters are not those of the state
--   seen       the numbers of the state before; with a `granted` of nil, an error if the ask is invalid
--   value      what to write: a text; false to delete; a function that writes; nil to leave the key unchanged
--   fresh_at   the microsecond from which on the new state equals a new key's: when it may expire
--
-- Why in Lua and not in Rust: if several gateways read, compute and write, the last one would win. Why so little in
-- Lua: Rust computes the reported values (remaining permits, retry time) from what was seen, with the same code as in
-- process.
local reply, filled = { now }, 1
local base, key, last = 4, 0, #argv
while base <= last do
  local asks, begins, granted = tonumber(argv[base]), filled + 1, true
  -- What to write. Tables only for several asks: most requests have one.
  local value, fresh_at, values, fresh, repairs
  if asks > 1 then values, fresh = {}, {} end
  base, filled, reply[begins] = base + 1, begins, 0
  for ask = 1, asks do
    local algorithm = algorithms[argv[base]]
    if not algorithm[op] then algorithm = algorithm.rare() end
    local ran, allowed, seen
    ran, allowed, seen, value, fresh_at = pcall(algorithm[op], KEYS[key + ask], argv[base + 1], base + 3)
    if not ran then
      -- An invalid state must not make the other requests of this call fail.
      allowed, seen = nil, redis.error_reply('ERR ' .. tostring(type(allowed) == 'table' and allowed.err or allowed))
    end
    if clock_set_back then
      clock_set_back = false
      -- A time that the caller provided is not evidence about clocks.
      if allowed == false and not caller_time then
        repairs = repairs or {}
        repairs[ask] = { (algorithm.repair or algorithm.rare().repair)(KEYS[key + ask], argv[base + 1], base + 3) }
        clock_set_back = false
      end
    end
    if allowed == nil and granted ~= nil then
      -- The states seen for the previous asks are discarded.
      for number = begins + 1, filled do reply[number] = nil end
      granted, filled, reply[begins] = nil, begins, seen or -ask
    elseif granted ~= nil then
      granted = granted and allowed
      if values then values[ask], fresh[ask] = value, fresh_at end
      local numbers = seen and #seen or 0
      filled = filled + 1
      reply[filled] = numbers
      for number = 1, numbers do reply[filled + number] = seen[number] end
      filled = filled + numbers
    end
    base = base + 4 + argv[base + 3]
  end
  if granted then
    reply[begins] = 1
    if writes and values then
      for ask = 1, asks do write(KEYS[key + ask], values[ask], fresh[ask]) end
    elseif writes and asks == 1 then
      write(KEYS[key + 1], value, fresh_at)
    end
  elseif repairs and writes then
    for ask, repaired in pairs(repairs) do write(KEYS[key + ask], repaired[1], repaired[2]) end
  end
  key = key + asks
end
return reply
